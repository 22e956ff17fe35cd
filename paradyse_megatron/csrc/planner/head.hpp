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
        const Problem of_head = problem(costs, head);
        of_head.check();
        return weighed(of_head, costs, head, std::move(choice));
    }

    Draft best(const Costs& costs) const {
        const Draft whole = best_with(costs, 0);
        if (costs.heads.size() == 1 || (whole.fits && is_fastest(costs, whole.choice))) return whole;
        Draft chunked = best_with(costs, 1);
        return is_better(costs, chunked, whole) ? chunked : whole;
    }

    bool some_fits(const Costs& costs) const {
        for (int head = 0; head < static_cast<int>(costs.heads.size()); ++head) {
            const Problem of_head = problem(costs, head);
            of_head.check();
            if (least_saved(of_head, budget)) return true;
        }
        return false;
    }

   private:
    static Draft weighed(const Problem& problem, const Costs& costs, int head, Choice choice) {
        const double milliseconds = problem.milliseconds(choice) + costs.heads[head].milliseconds;
        const int64_t peak = problem.peak(choice);
        return {head, std::move(choice), milliseconds, peak, peak <= problem.budget};
    }

    Draft best_with(const Costs& costs, int head) const {
        const Problem of_head = problem(costs, head);
        of_head.check();
        std::optional<Choice> choice = greedy(of_head);
        return weighed(of_head, costs, head, choice ? *std::move(choice) : least_memory(of_head));
    }

    bool is_fastest(const Costs& costs, const Choice& choice) const {
        std::vector<double> least;
        for (const Options& options : costs.kinds) {
            least.push_back(options[0].milliseconds);
            for (const Cost& cost : options) least.back() = std::min(least.back(), cost.milliseconds);
        }
        for (size_t layer = 0; layer < layers.size(); ++layer)
            if (costs.kinds[layers[layer]][choice[layer]].milliseconds > least[layers[layer]]) return false;
        return true;
    }

    bool is_better(const Costs& costs, const Draft& chunked, const Draft& whole) const {
        if (chunked.fits != whole.fits) return chunked.fits;
        if (!chunked.fits) return chunked.peak < whole.peak;
        const Problem layers_alone = problem(costs, 0);
        const bool faster = layers_alone.milliseconds(chunked.choice) < layers_alone.milliseconds(whole.choice);
        return faster && chunked.milliseconds < whole.milliseconds;
    }
};

}  // namespace paradyse
