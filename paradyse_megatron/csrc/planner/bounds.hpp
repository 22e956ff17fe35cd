// What the layers before some layer can do at best. Twin of planner/bounds.py, which explains it.
#pragma once

#include <array>
#include <utility>

#include "feasible.hpp"
#include "problem.hpp"

namespace paradyse {

constexpr int kNumPrices = 6, kUsual = 3;
using Prices = std::array<double, kNumPrices>;  // milliseconds per byte

// From one option of a kind to the next on its lower convex hull of time over saved bytes, for all layers of the kind.
struct Step {
    double price;
    int64_t bytes;
    size_t position;  // among those of all kinds

    bool operator<(const Step& other) const {
        return price != other.price ? price < other.price : position < other.position;
    }
};

inline void add_hull_steps(const Options& options, int64_t num_copies, int64_t in_flight, std::vector<Step>& steps) {
    const int num_options = static_cast<int>(options.size());
    for (int at = 0;;) {
        int next = -1;
        double least = 0.0;
        for (int index = at + 1; index < num_options; ++index) {
            if (options[index].saved >= options[at].saved) continue;
            const double price = (options[index].milliseconds - options[at].milliseconds) /
                                 static_cast<double>(in_flight * (options[at].saved - options[index].saved));
            if (next < 0 || price < least) next = index, least = price;
        }
        if (next < 0) return;
        steps.push_back({least, in_flight * (options[at].saved - options[next].saved) * num_copies, steps.size()});
        at = next;
    }
}

// Options must be sorted, fastest first.
inline Prices choose_prices(const Problem& problem, const std::vector<int64_t>& num_copies) {
    int64_t last_workspace = std::numeric_limits<int64_t>::max();
    for (const Cost& cost : problem.options(problem.num_layers() - 1))
        last_workspace = std::min(last_workspace, cost.workspace);
    int64_t needed = std::max(problem.head, last_workspace);
    std::vector<Step> steps;
    steps.reserve(16 * problem.kinds.size());
    for (size_t kind = 0; kind < problem.kinds.size(); ++kind) {
        needed += problem.in_flight * problem.kinds[kind][0].saved * num_copies[kind];
        add_hull_steps(problem.kinds[kind], num_copies[kind], problem.in_flight, steps);
    }
    if (steps.empty()) return Prices{};
    std::sort(steps.begin(), steps.end());
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

// Of a problem without buffers whose options are sorted, fastest first.
struct Pricing {
    Prices prices;
    std::vector<Prices> least;  // [kind]: time of one layer with its bytes paid for, at least
    double least_ms;            // what no choice that fits is faster than

    explicit Pricing(const Problem& problem) {
        std::vector<int64_t> num_copies(problem.kinds.size(), 0);
        for (int kind : problem.layers) ++num_copies[kind];
        prices = choose_prices(problem, num_copies);
        Prices priced{};
        least.reserve(problem.kinds.size());
        for (size_t kind = 0; kind < problem.kinds.size(); ++kind) {
            least.push_back(least_paid(problem.kinds[kind], problem.in_flight));
            for (int i = 0; i < kNumPrices; ++i) priced[i] += static_cast<double>(num_copies[kind]) * least[kind][i];
        }
        least_ms = within(priced, static_cast<double>(problem.budget - problem.head));
    }

    // The time of an option with its bytes paid for.
    Prices paid(const Cost& cost, int64_t in_flight) const {
        const double bytes = static_cast<double>(in_flight * cost.saved);
        Prices paid_ms;
        for (int i = 0; i < kNumPrices; ++i) paid_ms[i] = cost.milliseconds + prices[i] * bytes;
        return paid_ms;
    }

    // What layers of these priced times take at least within the room.
    double within(const Prices& priced, double room) const {
        double most_ms = priced[0];
        for (int i = 1; i < kNumPrices; ++i) most_ms = std::max(most_ms, priced[i] - prices[i] * room);
        return most_ms;
    }

   private:
    Prices least_paid(const Options& options, int64_t in_flight) const {
        Prices least_ms = paid(options[0], in_flight);
        for (const Cost& cost : options) {
            const Prices paid_ms = paid(cost, in_flight);
            for (int i = 0; i < kNumPrices; ++i) least_ms[i] = std::min(least_ms[i], paid_ms[i]);
        }
        return least_ms;
    }
};

// By number of layers, the first ones of a problem that some choice fits.
struct Bounds {
    const Pricing& pricing;
    std::vector<Prices> priced;        // least time with bytes paid for
    std::vector<int64_t> least, most;  // bytes that they save, at least and at most

    Bounds(const Problem& problem, const Pricing& of_problem) : pricing(of_problem) {
        count(problem);
        priced.resize(problem.layers.size() + 1);
        for (int layer = 0; layer < problem.num_layers(); ++layer)
            for (int i = 0; i < kNumPrices; ++i)
                priced[layer + 1][i] = priced[layer][i] + pricing.least[problem.layers[layer]][i];
    }

    // The least time that the first `layer` layers and what follows them can take.
    double time(int layer, double following_ms, int64_t room) const {
        return following_ms + pricing.within(priced[layer], static_cast<double>(room));
    }

   private:
    // Every layer must fit with what the other micro-batches hold at least.
    void count(const Problem& problem) {
        const int64_t budget = problem.budget - (problem.in_flight - 1) * least_saved_total(problem);
        std::vector<std::pair<int64_t, int64_t>> extremes;
        for (const Options& options : problem.kinds) extremes.push_back(most_and_calmest(options));
        Choice leanest;
        leanest.reserve(problem.layers.size());
        int64_t total;
        one_pass(problem, budget, leanest, total);
        least.resize(problem.layers.size() + 1);
        most.resize(problem.layers.size() + 1);
        for (int layer = 0; layer < problem.num_layers(); ++layer) {
            const auto& [largest, calmest] = extremes[problem.layers[layer]];
            least[layer + 1] = least[layer] + problem.cost(leanest, layer).saved;
            most[layer + 1] = std::min(most[layer] + largest, budget - calmest);
        }
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
};

}  // namespace paradyse
