// The levels with only the options worth looking at. Twin of planner/efficient.py, which explains it.
#pragma once

#include <tuple>
#include <utility>

#include "levels.hpp"

namespace paradyse {

inline bool no_worse(const Cost& a, const Cost& b) {
    return a.milliseconds <= b.milliseconds && a.saved <= b.saved && a.workspace <= b.workspace;
}

// By kind, where the options stand that are worth looking at at some level, fastest first.
using Shortlists = std::vector<std::vector<int>>;

// Left out are those that an earlier one is no worse than, buffer included: at no level can they be had without it.
inline std::vector<int> shortlist(const Options& options) {
    std::vector<std::pair<double, int>> order;  // milliseconds, index
    order.reserve(options.size());
    for (size_t index = 0; index < options.size(); ++index) order.emplace_back(options[index].milliseconds, index);
    std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
        if (a.first != b.first) return a.first < b.first;
        const Cost &x = options[a.second], &y = options[b.second];
        const int64_t x_workspace = x.workspace - x.buffer, y_workspace = y.workspace - y.buffer;
        return std::tie(x.saved, x_workspace, a.second) < std::tie(y.saved, y_workspace, b.second);
    });
    std::vector<int> kept;
    kept.reserve(options.size());
    for (const auto& [milliseconds, index] : order) {
        const Cost& cost = options[index];
        const auto makes_needless = [&](int k) {
            return options[k].buffer <= cost.buffer && no_worse(beside_buffer(options[k]), beside_buffer(cost));
        };
        if (std::none_of(kept.begin(), kept.end(), makes_needless)) kept.push_back(index);
    }
    return kept;
}

inline Shortlists shortlists(const Problem& problem) {
    Shortlists found;
    found.reserve(problem.kinds.size());
    for (const Options& options : problem.kinds) found.push_back(shortlist(options));
    return found;
}

inline std::optional<Level> efficient_level(const Problem& problem, const Shortlists& shortlists, int64_t buffer) {
    Level level = empty_level(problem, buffer);
    for (size_t kind = 0; kind < problem.kinds.size(); ++kind) {
        Options& kept = level.problem.kinds.emplace_back();
        std::vector<int>& indices = level.indices.emplace_back();
        kept.reserve(shortlists[kind].size());
        indices.reserve(shortlists[kind].size());
        for (int index : shortlists[kind]) {
            if (problem.kinds[kind][index].buffer > buffer) continue;
            const Cost cost = beside_buffer(problem.kinds[kind][index]);
            if (cost.saved * problem.in_flight + cost.workspace > level.problem.budget) continue;
            if (std::any_of(kept.begin(), kept.end(), [&](const Cost& k) { return no_worse(k, cost); })) continue;
            kept.push_back(cost);
            indices.push_back(index);
        }
        if (kept.empty()) return std::nullopt;
    }
    return level;
}

inline std::vector<Level> efficient_levels(const Problem& problem, const Shortlists& shortlists) {
    std::vector<Level> found;
    for (int64_t buffer : buffers(problem))
        if (std::optional<Level> level = efficient_level(problem, shortlists, buffer))
            found.push_back(*std::move(level));
    return found;
}

}  // namespace paradyse
