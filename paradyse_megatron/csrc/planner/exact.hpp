// The fastest choice that fits, exactly. Twin of planner/exact.py, which explains it.
#pragma once

#include <tuple>

#include "levels.hpp"

namespace paradyse {

struct Partial {
    double milliseconds = 0.0;
    int64_t saved = 0;
    int64_t peak = 0;
    Choice choice;

    bool operator<(const Partial& other) const {
        return std::tie(milliseconds, saved, peak, choice) <
               std::tie(other.milliseconds, other.saved, other.peak, other.choice);
    }
};

inline std::vector<Partial> efficient(std::vector<Partial> partials) {
    std::sort(partials.begin(), partials.end());
    std::vector<Partial> kept;
    for (Partial& partial : partials) {
        const bool beaten = std::any_of(kept.begin(), kept.end(), [&](const Partial& other) {
            return other.saved <= partial.saved && other.peak <= partial.peak;
        });
        if (!beaten) kept.push_back(std::move(partial));
    }
    return kept;
}

// Of a problem without buffers.
inline std::optional<Choice> exact_of(const Problem& problem) {
    std::vector<Partial> partials{Partial{}};
    for (int layer = 0; layer < problem.num_layers(); ++layer) {
        std::vector<Partial> longer;
        for (const Partial& partial : partials) {
            const Options& options = problem.options(layer);
            for (int index = 0; index < static_cast<int>(options.size()); ++index) {
                const int64_t saved = partial.saved + options[index].saved;
                const int64_t peak = std::max(partial.peak, saved + options[index].workspace);
                if (peak + (problem.in_flight - 1) * saved > problem.budget) continue;
                longer.push_back({partial.milliseconds + options[index].milliseconds, saved, peak, partial.choice});
                longer.back().choice.push_back(index);
            }
        }
        partials = efficient(std::move(longer));
    }
    for (const Partial& partial : partials)  // sorted: the first that fits is the fastest
        if (problem.fits(partial.choice)) return partial.choice;
    return std::nullopt;
}

inline std::optional<Choice> exact(const Problem& problem) {
    std::optional<Choice> best;
    double best_ms = 0.0;
    for (const Level& level : levels(problem)) {
        std::optional<Choice> choice = exact_of(level.problem);
        if (!choice) continue;
        const double milliseconds = level.problem.milliseconds(*choice);
        if (best && milliseconds >= best_ms) continue;
        best = level.in_whole(*std::move(choice)), best_ms = milliseconds;
    }
    return best;
}

}  // namespace paradyse
