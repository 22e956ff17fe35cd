// The problem without Megatron's buffer, once for each size that it can have. Twin of planner/levels.py, which explains it.
#pragma once

#include <functional>

#include "problem.hpp"

namespace paradyse {

struct Level {
    Problem problem;                        // no cost in it has a buffer
    std::vector<std::vector<int>> indices;  // [kind]: where its options stand in the whole problem

    Choice in_whole(Choice choice) const {
        for (int layer = 0; layer < problem.num_layers(); ++layer)
            choice[layer] = indices[problem.layers[layer]][choice[layer]];
        return choice;
    }
};

inline std::optional<Level> level_of(const Problem& problem, int64_t buffer) {
    Level level{{{}, problem.layers, problem.budget - buffer, problem.head - problem.head_buffer, problem.in_flight}, {}};
    for (const Options& options : problem.kinds) {
        Options& kept = level.problem.kinds.emplace_back();
        std::vector<int>& indices = level.indices.emplace_back();
        kept.reserve(options.size());
        indices.reserve(options.size());
        for (int index = 0; index < static_cast<int>(options.size()); ++index) {
            const Cost& cost = options[index];
            if (cost.buffer > buffer) continue;
            kept.push_back({cost.milliseconds, cost.saved, cost.workspace - cost.buffer});
            indices.push_back(index);
        }
        if (kept.empty()) return std::nullopt;
    }
    return level;
}

// The largest buffer first, with which every option can be had.
inline std::vector<Level> levels(const Problem& problem) {
    std::vector<int64_t> buffers{problem.head_buffer};
    for (const Options& options : problem.kinds)
        for (const Cost& cost : options)
            if (cost.buffer > problem.head_buffer && std::find(buffers.begin(), buffers.end(), cost.buffer) == buffers.end())
                buffers.push_back(cost.buffer);
    std::sort(buffers.begin(), buffers.end(), std::greater<>());
    std::vector<Level> found;
    for (int64_t buffer : buffers)
        if (std::optional<Level> level = level_of(problem, buffer)) found.push_back(*std::move(level));
    return found;
}

}  // namespace paradyse
