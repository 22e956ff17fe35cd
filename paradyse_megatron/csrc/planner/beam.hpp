// Widening beams under a lower bound. Twin of the beam in planner/search.py, which explains it.
#pragma once

#include <tuple>

#include "bounds.hpp"

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

// Puts options of one layer before suffixes of the layers after it.
class Extender {
   public:
    Extender(const Problem& problem, const Bounds& bounds, int layer, double best_ms)
        : options_(problem.options(layer).data()),
          priced_(bounds.priced[layer]),
          pricing_(bounds.pricing),
          usual_price_(pricing_.prices[kUsual]),
          usual_priced_ms_(priced_[kUsual]),
          best_ms_(best_ms),
          m_(problem.in_flight),
          budget_(problem.budget),
          least_(m_ * bounds.least[layer]),
          spare_(budget_ - m_ * bounds.most[layer]) {}

    // None where nothing before it fits or its bound is not below the best time; nor need there be one where that is
    // above `limit_ms`, which a single price tells in most cases.
    std::optional<Suffix> operator()(const Suffix& suffix, int parent, int option, double limit_ms) const {
        const Cost& cost = options_[option];
        const int64_t need = std::max(suffix.need, (m_ - 1) * suffix.saved + cost.workspace) + m_ * cost.saved;
        if (least_ + need > budget_) return std::nullopt;
        const double milliseconds = suffix.milliseconds + cost.milliseconds;
        const double room = static_cast<double>(budget_ - need);
        if (milliseconds + (usual_priced_ms_ - usual_price_ * room) > limit_ms) return std::nullopt;
        const double bound = milliseconds + pricing_.within(priced_, room);
        if (bound >= best_ms_) return std::nullopt;
        const int64_t saved = m_ == 1 ? 0 : suffix.saved + cost.saved;
        return Suffix{bound, milliseconds, std::max(need, spare_), saved, parent, option};
    }

   private:
    const Cost* options_;
    const Prices& priced_;
    const Pricing& pricing_;
    double usual_price_, usual_priced_ms_, best_ms_;
    int64_t m_, budget_;
    int64_t least_;  // that the layers before save
    int64_t spare_;  // needing less than that is of no use
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
            const size_t first_kept = kept_.size();
            std::vector<int>& options = usable[problem_.layers[layer]];
            work_ += static_cast<int64_t>((first_kept - first_[layer + 1]) * options.size());
            if (width == 1) {
                was_cut |= descend(layer, options);
            } else {
                extend(layer, options);
                was_cut |= keep(width, first_kept);
            }
            first_[layer] = first_kept;
            if (kept_.size() == first_kept) return was_cut;
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

    // Keeps the most promising way to go on from the only suffix; returns whether there were others.
    bool descend(int layer, std::vector<int>& usable) {
        const Extender extended(problem_, bounds_, layer, best_ms_);
        const Suffix shorter = kept_.back();
        std::optional<Suffix> first;
        bool were_more = false;
        for (int& option : usable) {
            const std::optional<Suffix> longer = extended(shorter, 0, option, were_more ? first->bound : best_ms_);
            if (!longer) continue;
            were_more = first.has_value();
            if (were_more && !(*longer < *first)) continue;
            first = longer;
            std::swap(option, usable[0]);  // likely the first at the next layer as well, and then seen at once
        }
        if (first) kept_.push_back(*first);
        return were_more;
    }

    // All ways to go on from the suffixes that were kept become candidates.
    void extend(int layer, const std::vector<int>& usable) {
        const Extender extended(problem_, bounds_, layer, best_ms_);
        candidates_.clear();
        for (size_t at = first_[layer + 1]; at < kept_.size(); ++at)
            for (int option : usable)
                if (const std::optional<Suffix> longer =
                        extended(kept_[at], static_cast<int>(at - first_[layer + 1]), option, best_ms_))
                    candidates_.push_back(*longer);
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

}  // namespace paradyse
