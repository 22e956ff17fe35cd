// Workspaces of ranks that reach each other's memory: a pad of signals, one for each peer, and two windows in turn.
//
// Signals are 64-bit counters that only grow. Whoever sees a signal sees all that its sender had written before. A build
// for the CPU brings `nanoseconds` and `give_up` along.
#ifndef PARADYSE_WORKSPACE_H
#define PARADYSE_WORKSPACE_H

#include "conversion.h"

namespace paradyse {

constexpr Int kPadMultiple = 256;  // the twin of comm/windows.py
constexpr Int kWindows = 2;

// Where the window of an exchange begins in a workspace, bytes.
PARADYSE_INLINE Int window_start(Int num_peers, Int window_bytes, Int number) {
    const Int signals = num_peers * static_cast<Int>(sizeof(Int));
    return (signals + kPadMultiple - 1) / kPadMultiple * kPadMultiple + number % kWindows * window_bytes;
}

#ifdef __CUDACC__

__device__ inline void send_signal(Int *place, Int number) {
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(place), "l"(number) : "memory");
}

__device__ inline Int seen_signal(const Int *place) {
    Int number;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(number) : "l"(place) : "memory");
    return number;
}

__device__ inline Int nanoseconds() {
    Int now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// Ends the kernel with an error instead of waiting for ever.
__device__ inline void give_up() { asm volatile("trap;"); }

#else

inline void send_signal(Int *place, Int number) { __atomic_store_n(place, number, __ATOMIC_RELEASE); }

inline Int seen_signal(const Int *place) { return __atomic_load_n(place, __ATOMIC_ACQUIRE); }

Int nanoseconds();

void give_up();

#endif

}  // namespace paradyse

#endif
