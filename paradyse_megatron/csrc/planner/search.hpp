// A fast choice that fits: widening beams under a lower bound. Twin of planner/search.py, which explains it.
#pragma once

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
    Beam(const Problem& problem, const Pricing& pricing)
        : problem_(problem), bounds_(problem, pricing), first_(problem.num_layers() + 1) {
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
        std::vector<std::vector<int>> usable = usable_options();
        const int num_layers = problem_.num_layers();
        kept_ = {Suffix{0.0, 0.0, problem_.head, 0, -1, -1}};
        first_[num_layers] = 0;
        bool was_cut = false;
        for (int layer = num_layers - 1; layer >= 0; --layer) {
            was_cut |= extend(layer, usable[problem_.layers[layer]], width == 1);
            first_[layer] = kept_.size();
            was_cut |= keep(width, first_[layer]);
            if (kept_.size() == first_[layer]) return was_cut;
        }
        trace_back();
        return was_cut;
    }

    // By kind: options with which the bound is below the best time.
    std::vector<std::vector<int>> usable_options() const {
        const Pricing& pricing = bounds_.pricing;
        const double room = static_cast<double>(problem_.budget - problem_.head);
        Prices without;
        for (int i = 0; i < kNumPrices; ++i) without[i] = bounds_.priced.back()[i] - pricing.prices[i] * room;
        std::vector<std::vector<int>> usable(problem_.kinds.size());
        for (size_t kind = 0; kind < problem_.kinds.size(); ++kind) {
            usable[kind].reserve(problem_.kinds[kind].size());
            for (int option = 0; option < static_cast<int>(problem_.kinds[kind].size()); ++option) {
                const Prices paid = pricing.paid(problem_.kinds[kind][option], problem_.in_flight);
                double bound = 0.0;
                for (int i = 0; i < kNumPrices; ++i)
                    bound = std::max(bound, without[i] + (paid[i] - pricing.least[kind][i]));
                if (bound < best_ms_) usable[kind].push_back(option);
            }
        }
        return usable;
    }

    // Forms the candidates: where `only_first`, the most promising one alone. Returns whether there were more.
    bool extend(int layer, std::vector<int>& usable, bool only_first) {
        const int64_t m = problem_.in_flight, budget = problem_.budget;
        const int64_t least = m * bounds_.least[layer], spare = budget - m * bounds_.most[layer];
        const Suffix* const shorter = &kept_[first_[layer + 1]];
        const int num_shorter = static_cast<int>(kept_.size() - first_[layer + 1]);
        const Options& options = problem_.options(layer);
        work_ += static_cast<int64_t>(num_shorter * usable.size());
        candidates_.clear();
        bool were_more = false;
        for (int parent = 0; parent < num_shorter; ++parent) {
            const Suffix& suffix = shorter[parent];
            const int64_t others = (m - 1) * suffix.saved;
            for (int& option : usable) {
                const Cost& cost = options[option];
                const int64_t need = std::max(suffix.need, others + cost.workspace) + m * cost.saved;
                if (least + need > budget) continue;
                const double milliseconds = suffix.milliseconds + cost.milliseconds;
                const double limit = were_more ? candidates_[0].bound : best_ms_;
                if (bounds_.time_at_one_price(layer, milliseconds, budget - need) > limit) continue;
                const double bound = bounds_.time(layer, milliseconds, budget - need);
                if (bound >= best_ms_) continue;
                const int64_t saved = m == 1 ? 0 : suffix.saved + cost.saved;
                const Suffix longer{bound, milliseconds, std::max(need, spare), saved, parent, option};
                if (only_first && !candidates_.empty()) {
                    were_more = true;
                    if (longer < candidates_[0]) candidates_[0] = longer, std::swap(option, usable[0]);
                } else {
                    candidates_.push_back(longer);
                }
            }
        }
        return were_more;
    }

    // Of the candidates the `width` with the lowest bounds that no other beats; returns whether there were more.
    bool keep(size_t width, size_t first_kept) {
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

// A level with the options worth looking at.
struct Prospect {
    Level level;
    Pricing pricing;

    // A fast choice of the level; of no use is what takes `cutoff_ms` or more.
    std::optional<Choice> search(double cutoff_ms) const {
        const Problem& problem = level.problem;
        Choice fastest(problem.num_layers(), 0);
        if (problem.fits(fastest)) return fastest;
        std::optional<Choice> start = least_saved_within(problem, problem.budget);
        if (!start) return std::nullopt;
        Choice choice = Beam(problem, pricing).widen(*std::move(start), cutoff_ms);
        arrange(problem, choice);
        return choice;
    }
};

inline std::vector<Prospect> find_prospects(const Problem& problem, const Shortlists& shortlists) {
    std::vector<Prospect> prospects;
    for (Level& level : efficient_levels(problem, shortlists)) {
        Pricing pricing(level.problem);
        prospects.push_back({std::move(level), std::move(pricing)});
    }
    return prospects;
}

// Only levels that promise more than what was found are searched.
inline std::optional<Choice> fastest_choice(const std::vector<Prospect>& prospects) {
    std::vector<const Prospect*> order;
    for (const Prospect& prospect : prospects) order.push_back(&prospect);
    std::stable_sort(order.begin(), order.end(), [](const Prospect* a, const Prospect* b) {
        return a->pricing.least_ms < b->pricing.least_ms;
    });
    std::optional<Choice> best;
    double best_ms = std::numeric_limits<double>::infinity();
    for (const Prospect* prospect : order) {
        const double cutoff_ms = best_ms / kNearEnough;
        if (best && prospect->pricing.least_ms >= cutoff_ms) break;
        std::optional<Choice> choice = prospect->search(cutoff_ms);
        if (!choice) continue;
        const double milliseconds = prospect->level.problem.milliseconds(*choice);
        if (milliseconds >= best_ms) continue;
        best = prospect->level.in_whole(*std::move(choice)), best_ms = milliseconds;
    }
    return best;
}

inline std::optional<Choice> greedy(const Problem& problem) {
    return fastest_choice(find_prospects(problem, shortlists(problem)));
}

}  // namespace paradyse
