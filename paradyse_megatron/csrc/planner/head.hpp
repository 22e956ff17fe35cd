// Which loss head goes with which options of the layers. Twin of planner/head.py, which explains it.
#pragma once

#include "search.hpp"

namespace paradyse {

struct HeadCost {
    double milliseconds;
    int64_t saved;
};

// Of every option at one length: by kind of layer, and by way to compute the head (whole, then chunked).
struct Costs {
    std::vector<Options> kinds;
    std::vector<HeadCost> heads;
};

struct Draft {
    int head;
    Choice choice;
    double milliseconds;
    int64_t peak;
    bool fits;
};

// The layers of one pipeline stage.
struct Stage {
    std::vector<int> layers;
    int64_t budget;
    int64_t in_flight;

    Problem problem(const Costs& costs, int head) const {
        return {costs.kinds, layers, budget, costs.heads.at(head).saved, in_flight};
    }

    Draft weigh(const Costs& costs, int head, Choice choice) const {
        const Problem of_head = checked(costs, head);
        return weighed(of_head, costs, head, std::move(choice));
    }

    Draft best(const Costs& costs) const {
        const Problem whole = checked(costs, 0);
        Draft fastest = weighed(whole, costs, 0, fastest_choice(costs));
        if (fastest.fits) return fastest;
        if (costs.heads.size() == 1) {
            std::optional<Choice> choice = greedy(whole);
            return weighed(whole, costs, 0, choice ? *std::move(choice) : least_memory(whole));
        }
        return best_of_two(costs, whole, checked(costs, 1));
    }

    bool some_fits(const Costs& costs) const {
        for (int head = 0; head < static_cast<int>(costs.heads.size()); ++head)
            if (least_saved(checked(costs, head), budget)) return true;
        return false;
    }

   private:
    Problem checked(const Costs& costs, int head) const {
        Problem of_head = problem(costs, head);
        of_head.check();
        return of_head;
    }

    static Draft weighed(const Problem& problem, const Costs& costs, int head, Choice choice) {
        const double milliseconds = problem.milliseconds(choice) + costs.heads[head].milliseconds;
        const int64_t peak = problem.peak(choice);
        return {head, std::move(choice), milliseconds, peak, peak <= problem.budget};
    }

    Choice fastest_choice(const Costs& costs) const {
        std::vector<int> fastest;
        for (const Options& options : costs.kinds) {
            const auto axes = [](const Cost& c) { return std::tie(c.milliseconds, c.saved, c.workspace); };
            const auto faster = [&](const Cost& a, const Cost& b) { return axes(a) < axes(b); };
            const auto first = std::min_element(options.begin(), options.end(), faster);
            fastest.push_back(static_cast<int>(first - options.begin()));
        }
        Choice choice;
        for (int kind : layers) choice.push_back(fastest[kind]);
        return choice;
    }

    Draft best_of_two(const Costs& costs, const Problem& whole, const Problem& chunked) const {
        std::optional<Choice> of_chunked = greedy(chunked);
        if (of_chunked && cannot_beat(costs, whole, chunked, *of_chunked))
            return weighed(chunked, costs, 1, *std::move(of_chunked));
        std::optional<Choice> of_whole = greedy(whole);
        if (!of_whole && !of_chunked) {
            Draft lean = weighed(whole, costs, 0, least_memory(whole));
            Draft leaner = weighed(chunked, costs, 1, least_memory(chunked));
            return leaner.peak < lean.peak ? leaner : lean;
        }
        if (!of_whole) return weighed(chunked, costs, 1, *std::move(of_chunked));
        Draft best = weighed(whole, costs, 0, *std::move(of_whole));
        if (!of_chunked) return best;
        const bool faster_layers = chunked.milliseconds(*of_chunked) < whole.milliseconds(best.choice);
        Draft other = weighed(chunked, costs, 1, *std::move(of_chunked));
        return faster_layers && other.milliseconds < best.milliseconds ? other : best;
    }

    static bool cannot_beat(const Costs& costs, const Problem& whole, const Problem& chunked, const Choice& choice) {
        const double least_ms = least_milliseconds(whole), layers_ms = chunked.milliseconds(choice);
        return layers_ms < least_ms &&
               layers_ms + costs.heads[1].milliseconds < least_ms + costs.heads[0].milliseconds;
    }
};

}  // namespace paradyse
