// Whether any choice fits, and the one that needs the least memory. Twin of planner/feasible.py, which explains it.
#pragma once

#include "levels.hpp"

namespace paradyse {

// Of the options with which a layer stays within the room, the one that saves the fewest bytes; -1 where none does.
inline int leanest_within(const Options& options, int64_t room) {
    int best = -1;
    for (int index = 0; index < static_cast<int>(options.size()); ++index) {
        const Cost& cost = options[index];
        if (cost.saved + cost.workspace > room) continue;
        if (best < 0 || cost.saved < options[best].saved ||
            (cost.saved == options[best].saved && cost.milliseconds < options[best].milliseconds))
            best = index;
    }
    return best;
}

// The choice that saves the fewest bytes while every layer stays within the bound; its total in `saved`.
inline bool one_pass(const Problem& problem, int64_t bound, Choice& choice, int64_t& saved) {
    std::vector<int> leanest(problem.kinds.size(), -1);  // as the room only shrinks, each stays so while it fits
    saved = 0;
    choice.clear();
    for (int kind : problem.layers) {
        const Options& options = problem.kinds[kind];
        const int64_t room = bound - saved;
        int& best = leanest[kind];
        if (best < 0 || options[best].saved + options[best].workspace > room) best = leanest_within(options, room);
        if (best < 0) return false;
        saved += options[best].saved;
        choice.push_back(best);
    }
    return true;
}

inline int64_t least_saved_total(const Problem& problem) {
    std::vector<int64_t> least;
    for (const Options& options : problem.kinds) {
        int64_t saved = std::numeric_limits<int64_t>::max();
        for (const Cost& cost : options) saved = std::min(saved, cost.saved);
        least.push_back(saved);
    }
    int64_t total = 0;
    for (int kind : problem.layers) total += least[kind];
    return total;
}

// Of a problem without buffers.
inline std::optional<Choice> least_saved_within(const Problem& problem, int64_t budget) {
    int64_t total = least_saved_total(problem), lower_bound = 0;
    Choice choice;
    choice.reserve(problem.layers.size());
    while (true) {
        if (!one_pass(problem, budget - (problem.in_flight - 1) * total, choice, lower_bound)) return std::nullopt;
        if (lower_bound * problem.in_flight + problem.head > budget) return std::nullopt;
        if (lower_bound == total || problem.in_flight == 1) return choice;
        total = lower_bound;
    }
}

inline std::optional<Choice> least_saved(const Problem& problem) {
    std::optional<Choice> best;
    int64_t best_saved = 0;
    for (const Level& level : levels(problem)) {
        std::optional<Choice> choice = least_saved_within(level.problem, level.problem.budget);
        if (!choice) continue;
        const int64_t saved = level.problem.saved(*choice);
        if (best && saved >= best_saved) continue;
        best = level.in_whole(*std::move(choice)), best_saved = saved;
    }
    return best;
}

// Of a problem without buffers.
inline Choice least_memory_of(const Problem& problem) {
    int64_t too_small = -1, enough = problem.peak(Choice(problem.num_layers(), 0));
    while (enough - too_small > 1) {
        const int64_t middle = too_small + (enough - too_small) / 2;
        (least_saved_within(problem, middle) ? enough : too_small) = middle;
    }
    return *least_saved_within(problem, enough);
}

inline Choice least_memory(const Problem& problem) {
    Choice best;
    for (const Level& level : levels(problem)) {
        Choice choice = level.in_whole(least_memory_of(level.problem));
        if (best.empty() || problem.peak(choice) < problem.peak(best)) best = std::move(choice);
    }
    return best;
}

}  // namespace paradyse
