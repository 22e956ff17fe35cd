// A fast choice that fits. Twin of planner/search.py, which explains it.
#pragma once

#include "beam.hpp"
#include "efficient.hpp"
#include "feasible.hpp"
#include "problem.hpp"

namespace paradyse {

// Within each run of layers of one kind, large workspaces first: that never raises the peak.
inline void arrange(const Problem& problem, Choice& choice) {
    for (int first = 0, layer = 1; layer <= problem.num_layers(); ++layer) {
        if (layer < problem.num_layers() && problem.layers[layer] == problem.layers[first]) continue;
        const Options& options = problem.options(first);
        std::sort(choice.begin() + first, choice.begin() + layer, [&](int a, int b) {
            return options[a].workspace != options[b].workspace ? options[a].workspace > options[b].workspace : a < b;
        });
        first = layer;
    }
}

// A level with the options worth looking at.
struct Prospect {
    Level level;
    Pricing pricing;

    // A fast choice of the level; of no use is what takes `cutoff_ms` or more.
    std::optional<Choice> search(double cutoff_ms) const {
        const Problem& problem = level.problem;
        Choice fastest(problem.num_layers(), 0);
        if (problem.fits(fastest)) return fastest;
        std::optional<Choice> start = least_saved_within(problem, problem.budget);
        if (!start) return std::nullopt;
        Choice choice = Beam(problem, pricing).widen(*std::move(start), cutoff_ms);
        arrange(problem, choice);
        return choice;
    }
};

inline std::vector<Prospect> find_prospects(const Problem& problem, const Shortlists& shortlists) {
    std::vector<Prospect> prospects;
    for (Level& level : efficient_levels(problem, shortlists)) {
        Pricing pricing(level.problem);
        prospects.push_back({std::move(level), std::move(pricing)});
    }
    return prospects;
}

// Only levels that promise more than what was found are searched.
inline std::optional<Choice> fastest_choice(const std::vector<Prospect>& prospects) {
    std::vector<const Prospect*> order;
    for (const Prospect& prospect : prospects) order.push_back(&prospect);
    std::stable_sort(order.begin(), order.end(), [](const Prospect* a, const Prospect* b) {
        return a->pricing.least_ms < b->pricing.least_ms;
    });
    std::optional<Choice> best;
    double best_ms = std::numeric_limits<double>::infinity();
    for (const Prospect* prospect : order) {
        const double cutoff_ms = best_ms / kNearEnough;
        if (best && prospect->pricing.least_ms >= cutoff_ms) break;
        std::optional<Choice> choice = prospect->search(cutoff_ms);
        if (!choice) continue;
        const double milliseconds = prospect->level.problem.milliseconds(*choice);
        if (milliseconds >= best_ms) continue;
        best = prospect->level.in_whole(*std::move(choice)), best_ms = milliseconds;
    }
    return best;
}

inline std::optional<Choice> greedy(const Problem& problem) {
    return fastest_choice(find_prospects(problem, shortlists(problem)));
}

}  // namespace paradyse
