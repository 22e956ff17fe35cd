// What CUDA brings, for the GPU kernels' own source as C++, and a loop over all blocks and threads. Threads run one after
// the other, as the kernels share no memory of a block; those that wait for a peer wait for another rank.
#ifndef PARADYSE_TESTS_SHIM_H
#define PARADYSE_TESTS_SHIM_H

#include <sched.h>

#include <chrono>
#include <cstring>

struct Dim3 {
    unsigned x, y, z;
};
static thread_local Dim3 gridDim, blockDim, blockIdx, threadIdx;
static thread_local bool gave_up;

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)

#include "kernels.cu"

namespace paradyse {

// Asked while waiting, so others get the processor.
Int nanoseconds() {
    sched_yield();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void give_up() { gave_up = true; }

}  // namespace paradyse

// Every thread of a launch, of `sections` blocks along y.
template <class Argument>
void run(void (*kernel)(Argument), const Argument &argument, unsigned blocks, unsigned sections, unsigned threads) {
    gridDim = {blocks, sections, 1};
    blockDim = {threads, 1, 1};
    for (blockIdx.y = 0; blockIdx.y < sections; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
            for (threadIdx.x = 0; threadIdx.x < threads && !gave_up; ++threadIdx.x) kernel(argument);
}

#endif
