// The problem without Megatron's buffer, for each size that it can have. Twin of planner/levels.py, which explains it.
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

inline Cost beside_buffer(const Cost& cost) { return {cost.milliseconds, cost.saved, cost.workspace - cost.buffer}; }

// The sizes that the buffer can have, the largest first.
inline std::vector<int64_t> buffers(const Problem& problem) {
    std::vector<int64_t> found{problem.head_buffer};
    for (const Options& options : problem.kinds)
        for (const Cost& cost : options)
            if (cost.buffer > problem.head_buffer && std::find(found.begin(), found.end(), cost.buffer) == found.end())
                found.push_back(cost.buffer);
    std::sort(found.begin(), found.end(), std::greater<>());
    return found;
}

// That size's level, still without options.
inline Level empty_level(const Problem& problem, int64_t buffer) {
    const int64_t budget = problem.budget - buffer, head = problem.head - problem.head_buffer;
    Level level{{{}, problem.layers, budget, head, problem.in_flight}, {}};
    level.problem.kinds.reserve(problem.kinds.size());
    level.indices.reserve(problem.kinds.size());
    return level;
}

inline std::optional<Level> level_of(const Problem& problem, int64_t buffer) {
    Level level = empty_level(problem, buffer);
    for (const Options& options : problem.kinds) {
        Options& kept = level.problem.kinds.emplace_back();
        std::vector<int>& indices = level.indices.emplace_back();
        for (int index = 0; index < static_cast<int>(options.size()); ++index) {
            if (options[index].buffer > buffer) continue;
            kept.push_back(beside_buffer(options[index]));
            indices.push_back(index);
        }
        if (kept.empty()) return std::nullopt;
    }
    return level;
}

inline std::vector<Level> levels(const Problem& problem) {
    std::vector<Level> found;
    for (int64_t buffer : buffers(problem))
        if (std::optional<Level> level = level_of(problem, buffer)) found.push_back(*std::move(level));
    return found;
}

}  // namespace paradyse
