// Costs that are polynomials of the length, evaluated. Twin of costmodel/polynomial.py with CostModel.predict.
#pragma once

#include <array>

#include "head.hpp"

namespace paradyse {

using Terms = std::array<double, 3>;  // constant, per token, per token squared

inline double evaluate(const Terms& terms, int64_t tokens) {
    return terms[0] + terms[1] * static_cast<double>(tokens) +
           terms[2] * static_cast<double>(checked_multiply(tokens, tokens));
}

inline int64_t whole_bytes(double bytes) {
    const double up = std::ceil(bytes);
    if (!(up >= 0.0)) throw std::invalid_argument("A cost in bytes is negative or no number; no cost falls with length.");
    if (up > static_cast<double>(kMostBytes)) throw Overflow("A cost is above 2^62 bytes, more than this search counts up to.");
    return static_cast<int64_t>(up);
}

struct Polynomials {
    std::vector<std::vector<std::array<Terms, 3>>> kinds;  // [kind][option]: milliseconds, saved and workspace bytes
    std::vector<std::array<Terms, 2>> heads;               // milliseconds, saved bytes

    Costs at(int64_t tokens) const {
        Costs costs;
        for (const auto& options : kinds) {
            costs.kinds.emplace_back();
            costs.kinds.back().reserve(options.size());
            for (const auto& [milliseconds, saved, workspace] : options)
                costs.kinds.back().push_back({evaluate(milliseconds, tokens), whole_bytes(evaluate(saved, tokens)),
                                              whole_bytes(evaluate(workspace, tokens))});
        }
        for (const auto& [milliseconds, saved] : heads)
            costs.heads.push_back({evaluate(milliseconds, tokens), whole_bytes(evaluate(saved, tokens))});
        return costs;
    }
};

}  // namespace paradyse
