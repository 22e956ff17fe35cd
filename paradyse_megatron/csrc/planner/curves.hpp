// Costs as functions of the length, evaluated. Twin of costmodel/curve.py with CostModel.predict, to the last bit: the
// same operations in the same order, logarithm and power of the same C library.
#pragma once

#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "head.hpp"

namespace paradyse {

using Terms = std::array<double, 3>;  // constant, per token, per token squared
using Point = std::pair<int64_t, double>;
using Parts = std::tuple<std::vector<Terms>, std::vector<Point>, std::vector<Terms>>;  // terms, points, terms below

inline double evaluate(const Terms& terms, int64_t tokens) {
    return terms[0] + terms[1] * static_cast<double>(tokens) +
           terms[2] * static_cast<double>(checked_multiply(tokens, tokens));
}

inline double largest(const std::vector<Terms>& terms, int64_t tokens) {
    double most = evaluate(terms.front(), tokens);
    for (size_t i = 1; i < terms.size(); ++i) most = std::max(most, evaluate(terms[i], tokens));
    return most;
}

inline double over(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

inline int64_t whole_bytes(double bytes) {
    const double up = std::ceil(bytes);
    if (!(up >= 0.0))
        throw std::invalid_argument("A cost in bytes is negative or no number; no cost falls with length.");
    if (up > static_cast<double>(kMostBytes))
        throw Overflow("A cost is above 2^62 bytes, more than this search counts up to.");
    return static_cast<int64_t>(up);
}

// Of tokens over an earlier length, which many curves have as a point.
class Logarithm {
   public:
    explicit Logarithm(int64_t tokens) : tokens_(tokens) {}

    double operator()(int64_t earlier) {
        if (earlier != earlier_) earlier_ = earlier, value_ = std::log(over(tokens_, earlier));
        return value_;
    }

   private:
    int64_t tokens_, earlier_ = -1;
    double value_ = 0.0;
};

class Curve {
   public:
    explicit Curve(Parts parts) {
        std::tie(terms_, points_, terms_below_) = std::move(parts);
        if (terms_.empty() || (!points_.empty() && terms_below_.empty()))
            throw std::invalid_argument("A cost curve has no terms, or points without terms below them.");
        for (size_t i = 1; i < points_.size(); ++i) {
            const auto& [earlier, lower] = points_[i - 1];
            const auto& [length, value] = points_[i];
            if (earlier >= length) throw std::invalid_argument("The points of a cost curve do not ascend.");
            steps_.push_back({std::log(over(length, earlier)), value / lower});
        }
    }

    double operator()(int64_t tokens) const {
        Logarithm logarithm(tokens);
        return at(tokens, logarithm);
    }

    double at(int64_t tokens, Logarithm& logarithm) const {
        if (points_.empty() || tokens > points_.back().first) return largest(terms_, tokens);
        if (tokens < points_.front().first) return largest(terms_below_, tokens);
        const auto shorter = [](const Point& point, int64_t sought) { return point.first < sought; };
        const size_t after = std::lower_bound(points_.begin(), points_.end(), tokens, shorter) - points_.begin();
        if (points_[after].first == tokens) return points_[after].second;
        const auto& [earlier, lower] = points_[after - 1];
        const auto& [log_ratio, ratio] = steps_[after - 1];
        return lower * std::pow(ratio, logarithm(earlier) / log_ratio);
    }

   private:
    std::vector<Terms> terms_;
    std::vector<Point> points_;  // tokens and value, ascending
    std::vector<Terms> terms_below_;
    std::vector<std::pair<double, double>> steps_;  // from point to point: logarithm of lengths, ratio of values
};

// Prepared once for all lengths.
class CurveTable {
   public:
    using OfOption = std::array<Parts, 4>;
    using OfHead = std::array<Parts, 3>;

    CurveTable(const std::vector<std::vector<OfOption>>& kinds, const std::vector<OfHead>& heads) {
        check_shape(kinds, heads);
        for (const auto& options : kinds) {
            kinds_.emplace_back();
            for (const auto& [milliseconds, saved, workspace, buffer] : options)
                kinds_.back().push_back({Curve(milliseconds), Curve(saved), Curve(workspace), Curve(buffer)});
        }
        for (const auto& [milliseconds, saved, buffer] : heads)
            heads_.push_back({Curve(milliseconds), Curve(saved), Curve(buffer)});
    }

    Costs at(int64_t tokens) const {
        Costs costs;
        Logarithm logarithm(tokens);
        costs.kinds.resize(kinds_.size());
        for (size_t kind = 0; kind < kinds_.size(); ++kind) {
            costs.kinds[kind].reserve(kinds_[kind].size());
            for (const auto& [milliseconds, saved, workspace, buffer] : kinds_[kind])
                costs.kinds[kind].push_back({checked_milliseconds(milliseconds.at(tokens, logarithm)),
                                             whole_bytes(saved(tokens)), whole_bytes(workspace(tokens)),
                                             whole_bytes(buffer(tokens))});
        }
        for (const auto& [milliseconds, saved, buffer] : heads_)
            costs.heads.push_back({checked_milliseconds(milliseconds(tokens)), whole_bytes(saved(tokens)),
                                   whole_bytes(buffer(tokens))});
        return costs;
    }

   private:
    std::vector<std::vector<std::array<Curve, 4>>> kinds_;  // [kind][option]: milliseconds, saved, workspace, buffer
    std::vector<std::array<Curve, 3>> heads_;               // milliseconds, saved bytes, buffer
};

}  // namespace paradyse
