// A fast choice that fits: widening beams under a lower bound. Twin of planner/search.py, which explains it.
#pragma once

#include <numeric>
#include <tuple>

#include "bounds.hpp"
#include "efficient.hpp"
#include "feasible.hpp"
#include "problem.hpp"

namespace paradyse {

constexpr int kWidening = 8;
constexpr int64_t kMostWork = 20000;  // steps
constexpr double kNearEnough = 1.005;

// The layers from some layer to the last, decided.
struct Suffix {
    double bound;         // the least time of any whole choice that ends so
    double milliseconds;  // of these layers
    int64_t need;         // at their worst moment, all micro-batches, above what the layers before them save
    int64_t saved;        // by these layers, where several micro-batches are in flight
    int parent, option;

    bool operator<(const Suffix& other) const {
        if (bound != other.bound) return bound < other.bound;
        return std::tie(milliseconds, need, saved, parent, option) <
               std::tie(other.milliseconds, other.need, other.saved, other.parent, other.option);
    }
    bool beats(const Suffix& other) const {
        return milliseconds <= other.milliseconds && need <= other.need && saved <= other.saved;
    }
};

class Beam {
   public:
    explicit Beam(const Problem& problem) : problem_(problem), bounds_(problem), first_(problem.num_layers() + 1) {
        kept_.reserve(problem.num_layers() + 1);
    }

    // From a choice that fits; of no use is what takes `cutoff_ms` or more.
    Choice widen(Choice best, double cutoff_ms) {
        best_ = std::move(best);
        best_ms_ = std::min(problem_.milliseconds(best_), cutoff_ms);
        const double enough = kNearEnough * bounds_.time(problem_.num_layers(), 0.0, problem_.budget - problem_.head);
        for (size_t width = 1;; width *= kWidening) {
            const bool was_cut = pass(width);
            if (!was_cut || best_ms_ <= enough || work_ * kWidening > kMostWork) return best_;
        }
    }

   private:
    // Goes from the last layer to the first with at most `width` suffixes; returns whether there were more.
    bool pass(size_t width) {
        const std::vector<std::vector<int>> usable = usable_options();
        const int num_layers = problem_.num_layers();
        kept_ = {Suffix{0.0, 0.0, problem_.head, 0, -1, -1}};
        first_[num_layers] = 0;
        bool was_cut = false;
        for (int layer = num_layers - 1; layer >= 0; --layer) {
            extend(layer, usable[problem_.layers[layer]]);
            first_[layer] = kept_.size();
            was_cut |= keep(width, first_[layer]);
            if (kept_.size() == first_[layer]) return was_cut;
        }
        trace_back();
        return was_cut;
    }

    // By kind: options with which the bound is below the best time.
    std::vector<std::vector<int>> usable_options() const {
        std::vector<std::vector<int>> usable(problem_.kinds.size());
        const double room = static_cast<double>(problem_.budget - problem_.head);
        for (size_t kind = 0; kind < problem_.kinds.size(); ++kind)
            for (int option = 0; option < static_cast<int>(problem_.kinds[kind].size()); ++option) {
                double bound = 0.0;
                for (int i = 0; i < kNumPrices; ++i) {
                    const double priced_ms = bounds_.priced.back()[i] - bounds_.prices[i] * room;
                    bound = std::max(bound, priced_ms + bounds_.excess[kind][option][i]);
                }
                if (bound < best_ms_) usable[kind].push_back(option);
            }
        return usable;
    }

    void extend(int layer, const std::vector<int>& usable) {
        const int64_t m = problem_.in_flight, budget = problem_.budget;
        const int64_t least = m * bounds_.least[layer], spare = budget - m * bounds_.most[layer];
        const Suffix* const shorter = &kept_[first_[layer + 1]];
        const int num_shorter = static_cast<int>(kept_.size() - first_[layer + 1]);
        const Options& options = problem_.options(layer);
        work_ += static_cast<int64_t>(num_shorter * usable.size());
        candidates_.clear();
        for (int parent = 0; parent < num_shorter; ++parent) {
            const Suffix& suffix = shorter[parent];
            const int64_t others = (m - 1) * suffix.saved;
            for (int option : usable) {
                const Cost& cost = options[option];
                const int64_t need = std::max(suffix.need, others + cost.workspace) + m * cost.saved;
                if (least + need > budget) continue;
                const double milliseconds = suffix.milliseconds + cost.milliseconds;
                const double bound = bounds_.time(layer, milliseconds, budget - need);
                if (bound >= best_ms_) continue;
                const int64_t saved = m == 1 ? 0 : suffix.saved + cost.saved;
                candidates_.push_back({bound, milliseconds, std::max(need, spare), saved, parent, option});
            }
        }
    }

    // Of the candidates the `width` with the lowest bounds that no other beats; returns whether there were more.
    bool keep(size_t width, size_t first_kept) {
        if (width == 1 && !candidates_.empty()) {
            kept_.push_back(*std::min_element(candidates_.begin(), candidates_.end()));
            return candidates_.size() > 1;
        }
        const auto later = [](const Suffix& a, const Suffix& b) { return b < a; };
        std::make_heap(candidates_.begin(), candidates_.end(), later);
        while (!candidates_.empty()) {
            const Suffix first = candidates_.front();
            const bool beaten =
                std::any_of(kept_.begin() + first_kept, kept_.end(), [&](const Suffix& k) { return k.beats(first); });
            if (!beaten && kept_.size() == first_kept + width) return true;
            if (!beaten) kept_.push_back(first);
            std::pop_heap(candidates_.begin(), candidates_.end(), later);
            candidates_.pop_back();
        }
        return false;
    }

    void trace_back() {
        const Suffix* fastest = &kept_[first_[0]];
        for (size_t index = first_[0]; index < kept_.size(); ++index)
            if (kept_[index].milliseconds < fastest->milliseconds) fastest = &kept_[index];
        best_ms_ = fastest->milliseconds;
        for (int layer = 0; layer < problem_.num_layers(); ++layer) {
            best_[layer] = fastest->option;
            fastest = &kept_[first_[layer + 1] + fastest->parent];
        }
    }

    const Problem& problem_;
    Bounds bounds_;
    std::vector<Suffix> kept_;   // level after level, from behind the last layer to the first
    std::vector<size_t> first_;  // [layer]: where the suffixes that begin with it begin
    std::vector<Suffix> candidates_;
    Choice best_;
    double best_ms_ = 0.0;
    int64_t work_ = 0;
};

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

// Of a problem without buffers.
inline std::optional<Choice> greedy_of(const Problem& problem, double cutoff_ms) {
    Problem reduced{{}, problem.layers, problem.budget, problem.head, problem.in_flight};
    std::vector<std::vector<int>> kept;
    for (const Options& options : problem.kinds) {
        kept.push_back(efficient_indices(options, problem.budget, problem.in_flight));
        if (kept.back().empty()) return std::nullopt;
        reduced.kinds.emplace_back();
        for (int index : kept.back()) reduced.kinds.back().push_back(options[index]);
    }
    Choice choice(problem.num_layers(), 0);
    if (!reduced.fits(choice)) {
        std::optional<Choice> start = least_saved_within(reduced, reduced.budget);
        if (!start) return std::nullopt;
        choice = Beam(reduced).widen(*std::move(start), cutoff_ms);
        arrange(reduced, choice);
    }
    for (int layer = 0; layer < problem.num_layers(); ++layer)
        choice[layer] = kept[problem.layers[layer]][choice[layer]];
    return choice;
}

// By level of a problem whose options are sorted, fastest first.
inline std::vector<double> least_by_level(const Problem& problem) {
    std::vector<double> least_ms;
    for (const Level& level : levels(problem)) least_ms.push_back(least_milliseconds_of(level.problem));
    return least_ms;
}

// The bounds of `least_by_level`, where they are known already.
inline std::optional<Choice> greedy(const Problem& problem, std::vector<double> least_ms = {}) {
    const std::vector<Level> found = levels(problem);
    if (found.size() == 1) least_ms = {0.0};
    if (least_ms.empty()) {
        Problem sorted = problem;
        sort_fastest_first(sorted.kinds);
        least_ms = least_by_level(sorted);
    }
    std::vector<int> order(found.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return least_ms[a] < least_ms[b]; });
    std::optional<Choice> best;
    double best_ms = std::numeric_limits<double>::infinity();
    for (const int at : order) {
        const double cutoff_ms = best_ms / kNearEnough;
        if (best && least_ms[at] >= cutoff_ms) break;
        std::optional<Choice> choice = greedy_of(found[at].problem, cutoff_ms);
        if (!choice) continue;
        const double milliseconds = found[at].problem.milliseconds(*choice);
        if (best && milliseconds >= best_ms) continue;
        best = found[at].in_whole(*std::move(choice)), best_ms = milliseconds;
    }
    return best;
}

}  // namespace paradyse
