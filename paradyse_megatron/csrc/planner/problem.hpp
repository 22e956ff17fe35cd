// The planning problem at one length, and the peak-memory rule. Twin of planner/problem.py and planner/memory.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace paradyse {

// Sums of bytes would leave 64 bits. Becomes a ValueError of its own kind, for which the twin steps in.
struct Overflow : std::overflow_error {
    using std::overflow_error::overflow_error;
};

// Of one layer and micro-batch; bytes. As planner/cost.py.
struct Cost {
    double milliseconds;
    int64_t saved;
    int64_t workspace;
    int64_t buffer = 0;  // of the workspace, in Megatron's buffer
};

using Options = std::vector<Cost>;
using Choice = std::vector<int>;  // for each layer the index of its option

constexpr int64_t kMostBytes = int64_t{1} << 62;

inline int64_t checked_add(int64_t a, int64_t b) {
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) throw Overflow("Bytes of a plan add up to more than 64 bits hold.");
    return sum;
}

inline int64_t checked_multiply(int64_t a, int64_t b) {
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product)) throw Overflow("Bytes of a plan multiply to more than 64 bits hold.");
    return product;
}

inline double checked_milliseconds(double milliseconds) {
    if (!std::isfinite(milliseconds)) throw std::invalid_argument("A cost in milliseconds is infinite or no number.");
    return milliseconds;
}

struct Problem {
    std::vector<Options> kinds;  // the options of a layer of each kind
    std::vector<int> layers;     // the kind of each layer, first layer first
    int64_t budget = 0;
    int64_t head = 0;
    int64_t in_flight = 1;
    int64_t head_buffer = 0;

    int num_layers() const { return static_cast<int>(layers.size()); }
    const Options& options(int layer) const { return kinds[layers[layer]]; }
    const Cost& cost(const Choice& choice, int layer) const { return options(layer)[choice[layer]]; }

    // Added up first layer first, as the twin does: the same double to the last bit.
    double milliseconds(const Choice& choice) const {
        double sum = 0.0;
        for (int layer = 0; layer < num_layers(); ++layer) sum += cost(choice, layer).milliseconds;
        return sum;
    }

    int64_t saved(const Choice& choice) const {
        int64_t sum = 0;
        for (int layer = 0; layer < num_layers(); ++layer) sum += cost(choice, layer).saved;
        return sum;
    }

    int64_t peak(const Choice& choice) const {
        int64_t saved = 0, peak = 0, buffer = head_buffer;
        for (int layer = 0; layer < num_layers(); ++layer) {
            const Cost& chosen = cost(choice, layer);
            saved += chosen.saved;
            peak = std::max(peak, saved + chosen.workspace - chosen.buffer);
            buffer = std::max(buffer, chosen.buffer);
        }
        return std::max(peak, saved + head - head_buffer) + buffer + (in_flight - 1) * saved;
    }

    bool fits(const Choice& choice) const { return peak(choice) <= budget; }

    // After this no sum that a search forms can overflow.
    void check() const {
        std::vector<int64_t> most_of_kind;
        for (const Options& options : kinds) {
            int64_t most = 0;
            for (const Cost& cost : options) most = std::max(most, checked_add(cost.saved, cost.workspace));
            most_of_kind.push_back(most);
        }
        int64_t most = head;
        for (int kind : layers) most = checked_add(most, most_of_kind[kind]);
        if (checked_multiply(most, in_flight) > kMostBytes)
            throw Overflow("A plan could need more than 2^62 bytes, which this search does not count up to.");
    }
};

}  // namespace paradyse
