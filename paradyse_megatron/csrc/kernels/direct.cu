// The exchange without a wire: one kernel stores what a rank holds straight into the windows of the ranks it goes to,
// another tells them and waits until theirs has come. Peers' memory is addressed by an array of base pointers.
//
// Exchange number n (from 1 on) goes into window n % 2 of each workspace. A signal n from a peer says two things: its
// stores of exchange n are there, and it has taken all out of its own window of exchange n - 1, as it does that before. So
// whoever has all signals of n - 1 may overwrite what peers got in n - 2, in the same window: one round of signals for
// each exchange is enough.
#include "tiles.h"
#include "rotate_tiles.h"
#include "workspace.h"

namespace paradyse {

// What one launch of `store_sections` does. Nothing but 64 bits wide. The wire places of a section count from the window
// of the peer that its row is for: peers follow each other from the section's first one on, copies fastest.
struct PeerMove {
    Section sections[kMaxSections];
    char *tensors[kMaxSections];
    char *const *peers;  // where each one's workspace begins: at a multiple of 16
    Int num_peers, window_bytes;
    Int number;  // of the exchange
    Int first_peer[kMaxSections];
    Int bytes_per_element;
    Rotary rotary;

    static constexpr Int to_wire = 1;

    __device__ Int wire_address() const { return window_bytes; }

    // Peer after peer a row each, so that all links are busy all the time, and no peer is everyone's target at once.
    __device__ Row nth_row(const Section &section, Int nth) const {
        const Int of_section = section.extent[PEER] * section.extent[COPY];
        const Int round = quotient(nth, of_section), peer = nth - round * of_section;
        return {peer * section.extent[TOKEN] * section.extent[BATCH] + round,
                peers[first_peer[blockIdx.y] + peer] + window_start(num_peers, window_bytes, number)};
    }
};

// What one launch of `meet_peers` does.
struct Meeting {
    char *const *peers;  // as above
    Int num_peers, rank;
    Int number;
    Int limit_ns;  // to wait
};

}  // namespace paradyse

PARADYSE_KERNEL(store_sections, PeerMove, 4) { paradyse::copy_section(move, move.sections[blockIdx.y]); }

// Rotating as they go.
#define PARADYSE_STORE_ROTATED(name, Number) \
    PARADYSE_KERNEL(store_rotated_##name, PeerMove, 4) { paradyse::rotate_section<paradyse::Number>(move); }
PARADYSE_STORE_ROTATED(float32, Float32)
PARADYSE_STORE_ROTATED(float64, Float64)
PARADYSE_STORE_ROTATED(bfloat16, BFloat16)
PARADYSE_STORE_ROTATED(float16, Float16)

// One block. Runs after `store_sections` on the same stream, so all of its stores come before.
extern "C" __global__ void meet_peers(const __grid_constant__ paradyse::Meeting meeting) {
    using paradyse::Int;
    for (Int peer = threadIdx.x; peer < meeting.num_peers; peer += blockDim.x)
        paradyse::send_signal(reinterpret_cast<Int *>(meeting.peers[peer]) + meeting.rank, meeting.number);
    const Int *signals = reinterpret_cast<const Int *>(meeting.peers[meeting.rank]);
    const Int begin = paradyse::nanoseconds();
    for (Int peer = threadIdx.x; peer < meeting.num_peers; peer += blockDim.x)
        while (paradyse::seen_signal(signals + peer) < meeting.number)
            if (paradyse::nanoseconds() - begin > meeting.limit_ns) return paradyse::give_up();
}
