// What the layers before some layer can do at best. Twin of planner/bounds.py, which explains it.
#pragma once

#include <array>
#include <utility>

#include "feasible.hpp"
#include "problem.hpp"

namespace paradyse {

constexpr int kNumPrices = 6;
using Prices = std::array<double, kNumPrices>;  // milliseconds per byte

// From one option of a kind to the next on its lower convex hull of time over saved bytes, for all layers of the kind.
struct Step {
    double price;
    int64_t bytes;
};

inline std::vector<Step> hull_steps(const Options& options, int64_t num_copies, int64_t in_flight) {
    std::vector<Step> steps;
    int at = 0;
    while (true) {
        int next = -1;
        double least = 0.0;
        for (int index = at + 1; index < static_cast<int>(options.size()); ++index) {
            if (options[index].saved >= options[at].saved) continue;
            const double price = (options[index].milliseconds - options[at].milliseconds) /
                                 static_cast<double>(in_flight * (options[at].saved - options[index].saved));
            if (next < 0 || price < least) next = index, least = price;
        }
        if (next < 0) return steps;
        steps.push_back({least, in_flight * (options[at].saved - options[next].saved) * num_copies});
        at = next;
    }
}

// Options must be sorted, fastest first.
inline Prices choose_prices(const Problem& problem) {
    std::vector<int64_t> num_copies(problem.kinds.size(), 0);
    for (int kind : problem.layers) ++num_copies[kind];
    int64_t last_workspace = std::numeric_limits<int64_t>::max();
    for (const Cost& cost : problem.options(problem.num_layers() - 1))
        last_workspace = std::min(last_workspace, cost.workspace);
    int64_t needed = std::max(problem.head, last_workspace);
    std::vector<Step> steps;
    for (size_t kind = 0; kind < problem.kinds.size(); ++kind) {
        const Options& options = problem.kinds[kind];
        needed += problem.in_flight * options[0].saved * num_copies[kind];
        for (const Step& step : hull_steps(options, num_copies[kind], problem.in_flight)) steps.push_back(step);
    }
    if (steps.empty()) return Prices{};
    std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.price < b.price; });
    const size_t num_steps = steps.size();
    size_t num_taken = 0;
    while (num_taken < num_steps && needed > problem.budget) needed -= steps[num_taken++].bytes;
    const size_t last = num_taken > 0 ? num_taken - 1 : 0, before = last > 0 ? last - 1 : 0;
    const size_t after = std::min(last + 1, num_steps - 1), far_after = (last + num_steps) / 2;
    return {0.0,
            steps[last / 2].price,
            steps[before].price,
            steps[last].price,
            steps[after].price,
            steps[far_after].price};
}

struct Bounds {
    Prices prices;
    std::vector<std::vector<Prices>> excess;  // [kind][option]: priced time above the least of the kind
    std::vector<Prices> priced;               // [layer]: least priced time of the layers before it
    std::vector<int64_t> least, most;         // [layer]: bytes that they save, at least and at most

    explicit Bounds(const Problem& problem) : prices(choose_prices(problem)) {
        std::vector<Prices> least_priced;
        for (const Options& options : problem.kinds) least_priced.push_back(price(options, problem.in_flight));
        const int64_t budget = problem.budget - (problem.in_flight - 1) * least_saved_total(problem);
        std::vector<std::pair<int64_t, int64_t>> extremes;
        for (const Options& options : problem.kinds) extremes.push_back(most_and_calmest(options));
        priced.reserve(problem.layers.size() + 1);
        priced.push_back(Prices{});
        least.push_back(0);
        most.push_back(0);
        for (int kind : problem.layers) {
            Prices sum = priced.back();
            for (int i = 0; i < kNumPrices; ++i) sum[i] += least_priced[kind][i];
            priced.push_back(sum);
            count(problem.kinds[kind], budget, extremes[kind]);
        }
    }

    // The least time that the first `layer` layers and what follows them can take.
    double time(int layer, double following_ms, int64_t room) const {
        double most_ms = priced[layer][0];
        for (int i = 1; i < kNumPrices; ++i)
            most_ms = std::max(most_ms, priced[layer][i] - prices[i] * static_cast<double>(room));
        return following_ms + most_ms;
    }

   private:
    Prices price(const Options& options, int64_t in_flight) {
        Prices least_priced;
        least_priced.fill(std::numeric_limits<double>::infinity());
        std::vector<Prices> all;
        for (const Cost& cost : options) {
            Prices priced_ms;
            for (int i = 0; i < kNumPrices; ++i) {
                priced_ms[i] = cost.milliseconds + prices[i] * static_cast<double>(in_flight * cost.saved);
                least_priced[i] = std::min(least_priced[i], priced_ms[i]);
            }
            all.push_back(priced_ms);
        }
        for (Prices& priced_ms : all)
            for (int i = 0; i < kNumPrices; ++i) priced_ms[i] -= least_priced[i];
        excess.push_back(std::move(all));
        return least_priced;
    }

    // The most that an option saves, and the least workspace that one needs.
    static std::pair<int64_t, int64_t> most_and_calmest(const Options& options) {
        int64_t largest = 0, calmest = std::numeric_limits<int64_t>::max();
        for (const Cost& cost : options) {
            largest = std::max(largest, cost.saved);
            calmest = std::min(calmest, cost.workspace);
        }
        return {largest, calmest};
    }

    void count(const Options& options, int64_t budget, const std::pair<int64_t, int64_t>& extremes) {
        int64_t fewest = std::numeric_limits<int64_t>::max();
        for (const Cost& cost : options)
            if (least.back() + cost.saved + cost.workspace <= budget) fewest = std::min(fewest, cost.saved);
        least.push_back(least.back() + fewest);
        most.push_back(std::min(most.back() + extremes.first, budget - extremes.second));
    }
};

inline void sort_fastest_first(std::vector<Options>& kinds) {
    for (Options& options : kinds)
        std::stable_sort(options.begin(), options.end(),
                         [](const Cost& a, const Cost& b) { return a.milliseconds < b.milliseconds; });
}

// What no choice that fits is faster than; of a problem without buffers whose options are sorted, fastest first.
inline double least_milliseconds_of(const Problem& problem) {
    const Prices prices = choose_prices(problem);
    const double room = static_cast<double>(problem.budget - problem.head);
    double most_ms = -std::numeric_limits<double>::infinity();
    for (double price : prices) {
        std::vector<double> least;
        for (const Options& options : problem.kinds) {
            least.push_back(std::numeric_limits<double>::infinity());
            for (const Cost& cost : options)
                least.back() = std::min(
                    least.back(), cost.milliseconds + price * static_cast<double>(problem.in_flight * cost.saved));
        }
        double priced = 0.0;
        for (int kind : problem.layers) priced += least[kind];
        most_ms = std::max(most_ms, priced - price * room);
    }
    return most_ms;
}

}  // namespace paradyse
