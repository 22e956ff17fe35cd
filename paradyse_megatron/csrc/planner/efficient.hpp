// Which options of a layer are worth looking at. Twin of planner/efficient.py, which explains it.
#pragma once

#include <tuple>

#include "problem.hpp"

namespace paradyse {

inline bool no_worse(const Cost& a, const Cost& b) {
    return a.milliseconds <= b.milliseconds && a.saved <= b.saved && a.workspace <= b.workspace;
}

// Indices of the options kept, fastest first.
inline std::vector<int> efficient_indices(const Options& options, int64_t budget, int64_t in_flight) {
    std::vector<int> order, kept;
    order.reserve(options.size());
    for (int index = 0; index < static_cast<int>(options.size()); ++index)
        if (options[index].saved * in_flight + options[index].workspace <= budget) order.push_back(index);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
        const Cost &x = options[a], &y = options[b];
        return std::tie(x.milliseconds, x.saved, x.workspace, a) < std::tie(y.milliseconds, y.saved, y.workspace, b);
    });
    for (int index : order)
        if (std::none_of(kept.begin(), kept.end(), [&](int k) { return no_worse(options[k], options[index]); }))
            kept.push_back(index);
    return kept;
}

}  // namespace paradyse
