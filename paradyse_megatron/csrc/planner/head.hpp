// Which loss head goes with which options of the layers. Twin of planner/head.py, which explains it.
#pragma once

#include <array>

#include "search.hpp"

namespace paradyse {

struct HeadCost {
    double milliseconds;
    int64_t saved;
    int64_t buffer = 0;  // of the saved bytes, in Megatron's buffer
};

constexpr const char* kNoOption = "A layer has no option to choose from.";

// Of costs by kind and option, and by head, whatever each is.
template <class Kinds, class Heads>
void check_shape(const Kinds& kinds, const Heads& heads) {
    for (const auto& options : kinds)
        if (options.empty()) throw std::invalid_argument(kNoOption);
    if (heads.empty() || heads.size() > 2)
        throw std::invalid_argument("There are one or two ways to compute the head, but costs of " +
                                    std::to_string(heads.size()) + ".");
}

// Of every option at one length: by kind of layer, and by way to compute the head (whole, then chunked).
struct Costs {
    std::vector<Options> kinds;
    std::vector<HeadCost> heads;
};

struct Draft {
    int head;
    Choice choice;
    double layers_ms;     // without the head
    double milliseconds;  // with it
    int64_t peak;
    bool fits;
};

// The layers of one pipeline stage.
struct Stage {
    std::vector<int> layers;
    size_t num_kinds;
    int64_t budget;
    int64_t in_flight;

    Problem problem(const Costs& costs, int head) const {
        if (costs.kinds.size() != num_kinds)
            throw std::invalid_argument("The stage has layers of " + std::to_string(num_kinds) +
                                        " kinds, but there are costs of " + std::to_string(costs.kinds.size()) + ".");
        if (head < 0 || head >= static_cast<int>(costs.heads.size()))
            throw std::invalid_argument("There is no head " + std::to_string(head) + ", but " +
                                        std::to_string(costs.heads.size()) + " from 0.");
        return {costs.kinds, layers, budget, costs.heads[head].saved, in_flight, costs.heads[head].buffer};
    }

    Draft weigh(const Costs& costs, int head, Choice choice) const {
        const Problem of_head = checked(costs, head);
        return weighed(of_head, costs, head, std::move(choice));
    }

    Draft best(const Costs& costs) const {
        const Problem whole = checked(costs, 0);
        Draft fastest = weighed(whole, costs, 0, fastest_choice_of_all(costs));
        if (fastest.fits) return fastest;
        std::vector<Problem> problems{whole};
        for (size_t head = 1; head < costs.heads.size(); ++head) problems.push_back(checked(costs, head));
        std::optional<Draft> found = best_that_fits(costs, problems);
        return found ? *std::move(found) : leanest(costs, problems);
    }

    bool some_fits(const Costs& costs) const {
        for (int head = 0; head < static_cast<int>(costs.heads.size()); ++head)
            if (least_saved(checked(costs, head))) return true;
        return false;
    }

   private:
    Problem checked(const Costs& costs, int head) const {
        Problem of_head = problem(costs, head);
        of_head.check();
        return of_head;
    }

    static Draft weighed(const Problem& problem, const Costs& costs, int head, Choice choice) {
        const double layers_ms = problem.milliseconds(choice);
        const int64_t peak = problem.peak(choice);
        const double milliseconds = layers_ms + costs.heads[head].milliseconds;
        return {head, std::move(choice), layers_ms, milliseconds, peak, peak <= problem.budget};
    }

    Choice fastest_choice_of_all(const Costs& costs) const {
        std::vector<int> fastest;
        for (const Options& options : costs.kinds) {
            const auto axes = [](const Cost& c) { return std::tie(c.milliseconds, c.saved, c.workspace); };
            const auto faster = [&](const Cost& a, const Cost& b) { return axes(a) < axes(b); };
            const auto first = std::min_element(options.begin(), options.end(), faster);
            fastest.push_back(static_cast<int>(first - options.begin()));
        }
        Choice choice;
        choice.reserve(layers.size());
        for (int kind : layers) choice.push_back(fastest[kind]);
        return choice;
    }

    std::optional<Draft> best_that_fits(const Costs& costs, const std::vector<Problem>& problems) const {
        const Shortlists lists = shortlists(problems[0]);
        std::array<std::vector<Prospect>, 2> prospects;
        std::array<double, 2> least_ms, total_ms;
        least_ms.fill(std::numeric_limits<double>::infinity());
        total_ms = least_ms;
        for (size_t head = 0; head < problems.size(); ++head) {
            prospects[head] = find_prospects(problems[head], lists);
            for (const Prospect& prospect : prospects[head])
                least_ms[head] = std::min(least_ms[head], prospect.pricing.least_ms);
            total_ms[head] = least_ms[head] + costs.heads[head].milliseconds;
        }
        const int first = total_ms[1] < total_ms[0] ? 1 : 0;
        std::array<std::optional<Draft>, 2> found;
        for (const int head : {first, 1 - first}) {
            if (prospects[head].empty()) continue;
            if (found[1 - head] && cannot_beat(costs, head, least_ms[head], *found[1 - head])) continue;
            std::optional<Choice> choice = fastest_choice(prospects[head]);
            if (choice) found[head] = weighed(problems[head], costs, head, *std::move(choice));
        }
        if (found[0] && found[1]) return is_better(*found[1], *found[0]) ? found[1] : found[0];
        return found[0] ? found[0] : found[1];
    }

    static Draft leanest(const Costs& costs, const std::vector<Problem>& problems) {
        Draft lean = weighed(problems[0], costs, 0, least_memory(problems[0]));
        for (size_t head = 1; head < problems.size(); ++head) {
            Draft leaner = weighed(problems[head], costs, head, least_memory(problems[head]));
            if (leaner.peak < lean.peak) lean = std::move(leaner);
        }
        return lean;
    }

    // Whether the other head's draft stays, whatever this head's turns out to be.
    static bool cannot_beat(const Costs& costs, int head, double least_ms, const Draft& other) {
        const double least_total = least_ms + costs.heads[head].milliseconds;
        if (head == 0) return other.layers_ms < least_ms && other.milliseconds < least_total;
        return other.layers_ms <= least_ms || other.milliseconds <= least_total;
    }

    static bool is_better(const Draft& chunked, const Draft& whole) {
        return chunked.layers_ms < whole.layers_ms && chunked.milliseconds < whole.milliseconds;
    }
};

}  // namespace paradyse
