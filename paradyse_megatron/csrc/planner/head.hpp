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
    int64_t budget;
    int64_t in_flight;

    Problem problem(const Costs& costs, int head) const {
        return {costs.kinds, layers, budget, costs.heads.at(head).saved, in_flight, costs.heads.at(head).buffer};
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
        return {head, std::move(choice), layers_ms, layers_ms + costs.heads[head].milliseconds, peak, peak <= problem.budget};
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
        const std::array<const Problem*, 2> problems{&whole, &chunked};
        Problem sorted = whole;
        sort_fastest_first(sorted.kinds);
        std::array<double, 2> least_ms;
        std::array<std::vector<double>, 2> by_level;
        for (const int head : {0, 1}) {
            sorted.head = costs.heads[head].saved, sorted.head_buffer = costs.heads[head].buffer;
            by_level[head] = least_by_level(sorted);
            least_ms[head] = *std::min_element(by_level[head].begin(), by_level[head].end());
        }
        const bool chunked_first =
            least_ms[1] + costs.heads[1].milliseconds < least_ms[0] + costs.heads[0].milliseconds;
        std::array<std::optional<Draft>, 2> found;
        for (const int head : {chunked_first ? 1 : 0, chunked_first ? 0 : 1}) {
            if (found[1 - head] && cannot_beat(costs, head, least_ms[head], *found[1 - head])) return *found[1 - head];
            std::optional<Choice> choice = greedy(*problems[head], by_level[head]);
            if (choice) found[head] = weighed(*problems[head], costs, head, *std::move(choice));
        }
        if (found[0] && found[1]) return is_better(*found[1], *found[0]) ? *found[1] : *found[0];
        if (found[0] || found[1]) return found[0] ? *found[0] : *found[1];
        Draft lean = weighed(whole, costs, 0, least_memory(whole));
        Draft leaner = weighed(chunked, costs, 1, least_memory(chunked));
        return leaner.peak < lean.peak ? leaner : lean;
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
