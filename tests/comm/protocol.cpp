// The exchange of csrc/kernels/direct.cu among ranks that are threads, where ThreadSanitizer sees every store of a kernel
// and every read of a window, or processes with shared memory. Each rank waits at random before it stores, and before it
// takes out what came. Every byte is compared; the status is 0 if all are right.
//     protocol threads|processes RANKS CALLS SHARE_OF_DELAYED_CALLS MOST_MS
#include "shim.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

namespace {

using paradyse::Int;
using Random = std::mt19937;

constexpr Int kWidth = 40;  // bytes of a piece: neither a vector nor a multiple of one
constexpr Int kMostPieces = 5;

struct Asked {
    Int num_ranks, num_calls;
    double share_of_delayed, most_ms;
    Int window_bytes() const { return (num_ranks * kMostPieces * kWidth + 255) / 256 * 256; }
};

// What a rank sends to another, byte by byte.
char byte_of(Int call, Int from, Int to, Int place) { return static_cast<char>(call * 31 + from * 7 + to * 3 + place); }

void wait_at_random(const Asked &asked, Random &random) {
    std::uniform_real_distribution<double> uniform(0, 1);
    if (uniform(random) < asked.share_of_delayed)
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(uniform(random) * asked.most_ms));
}

// [pieces][to][width] at home, [from][pieces][width] in the window of whoever gets it.
void store(const Asked &asked, Int rank, Int call, Int num_pieces, char *const *peers) {
    std::vector<char> held(static_cast<std::size_t>(num_pieces * asked.num_ranks * kWidth));
    for (Int piece = 0; piece < num_pieces; ++piece)
        for (Int to = 0; to < asked.num_ranks; ++to)
            for (Int byte = 0; byte < kWidth; ++byte)
                held[static_cast<std::size_t>((piece * asked.num_ranks + to) * kWidth + byte)] =
                    byte_of(call, rank, to, piece * kWidth + byte);
    paradyse::PeerMove move{};
    move.sections[0] = {0, kWidth, 0, rank * num_pieces * kWidth, {asked.num_ranks, 1, num_pieces, 1, 1, 1},
                        {kWidth, 0, asked.num_ranks * kWidth, 0, 0, 0}, {0, 0, kWidth, 0, 0, 0}};
    move.tensors[0] = held.data();
    move.peers = peers;
    move.num_peers = asked.num_ranks;
    move.window_bytes = asked.window_bytes();
    move.number = call;
    move.bytes_per_element = 1;
    run(store_sections, move, 2, 1, 32);
}

Int num_wrong(const Asked &asked, Int rank, Int call, Int num_pieces, const char *workspace) {
    const char *window = workspace + paradyse::window_start(asked.num_ranks, asked.window_bytes(), call);
    Int wrong = 0;
    for (Int from = 0; from < asked.num_ranks; ++from)
        for (Int place = 0; place < num_pieces * kWidth; ++place)
            wrong += window[from * num_pieces * kWidth + place] != byte_of(call, from, rank, place);
    return wrong;
}

Int exchange(const Asked &asked, Int rank, char *const *peers) {
    Random lengths(0), delays(static_cast<unsigned>(rank + 1));
    Int wrong = 0;
    for (Int call = 1; call <= asked.num_calls; ++call) {
        const Int num_pieces = 1 + static_cast<Int>(lengths() % kMostPieces);
        wait_at_random(asked, delays);
        store(asked, rank, call, num_pieces, peers);
        run(meet_peers, paradyse::Meeting{peers, asked.num_ranks, rank, call, 60'000'000'000}, 1, 1, 32);
        if (gave_up) std::abort();
        wait_at_random(asked, delays);
        wrong += num_wrong(asked, rank, call, num_pieces, peers[rank]);
    }
    return wrong;
}

}  // namespace

namespace {

std::vector<char *> workspaces(const Asked &asked) {
    const Int num_bytes = paradyse::window_start(asked.num_ranks, asked.window_bytes(), 0) + 2 * asked.window_bytes();
    std::vector<char *> found;
    for (Int rank = 0; rank < asked.num_ranks; ++rank)
        found.push_back(static_cast<char *>(mmap(nullptr, static_cast<std::size_t>(num_bytes), PROT_READ | PROT_WRITE,
                                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0)));
    return found;
}

// Whether no byte was wrong.
bool right_in_threads(const Asked &asked, char *const *peers) {
    std::atomic<Int> wrong{0};
    std::vector<std::thread> ranks;
    for (Int rank = 0; rank < asked.num_ranks; ++rank)
        ranks.emplace_back([&, rank] { wrong += exchange(asked, rank, peers); });
    for (std::thread &rank : ranks) rank.join();
    return wrong.load() == 0;
}

bool right_in_processes(const Asked &asked, char *const *peers) {
    for (Int rank = 0; rank < asked.num_ranks; ++rank)
        if (fork() == 0) _exit(exchange(asked, rank, peers) != 0);
    bool right = true;
    for (Int rank = 0; rank < asked.num_ranks; ++rank) {
        int status = 0;
        wait(&status);
        right = right && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return right;
}

}  // namespace

int main(int count, char **words) {
    if (count != 6) return 2;
    const Asked asked{std::atoll(words[2]), std::atoll(words[3]), std::atof(words[4]), std::atof(words[5])};
    const std::vector<char *> peers = workspaces(asked);
    const bool threads = std::strcmp(words[1], "threads") == 0;
    const bool right = threads ? right_in_threads(asked, peers.data()) : right_in_processes(asked, peers.data());
    std::puts(right ? "every byte is right" : "bytes are wrong");
    return !right;
}
