// The GPU kernels' own source as C++: a shim of what CUDA brings, and a loop over all blocks and threads. Built by
// tests/comm/emulated.py. Threads run one after the other, as the kernels neither wait nor share memory.
#include <cstring>

struct Dim3 {
    unsigned x, y, z;
};
static Dim3 gridDim, blockDim, blockIdx, threadIdx;

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)

#include "conversion.cu"

namespace {

struct Kernel {
    const char *name;
    void (*run)(paradyse::Move);
};

constexpr Kernel kKernels[] = {{"copy_sections", copy_sections},
                               {"sum_sections_float32", sum_sections_float32},
                               {"sum_sections_float64", sum_sections_float64},
                               {"sum_sections_bfloat16", sum_sections_bfloat16},
                               {"sum_sections_float16", sum_sections_float16}};

}  // namespace

extern "C" int num_kernels() { return static_cast<int>(sizeof(kKernels) / sizeof(Kernel)); }

extern "C" long long bytes_of_move() { return sizeof(paradyse::Move); }

// Returns whether there is such a kernel.
extern "C" bool launch(const char *name, const void *move, unsigned blocks, unsigned sections, unsigned threads) {
    paradyse::Move copied;
    std::memcpy(&copied, move, sizeof(copied));
    for (const Kernel &kernel : kKernels) {
        if (std::strcmp(kernel.name, name) != 0) continue;
        gridDim = {blocks, sections, 1};
        blockDim = {threads, 1, 1};
        for (blockIdx.y = 0; blockIdx.y < sections; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
                for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel.run(copied);
        return true;
    }
    return false;
}
