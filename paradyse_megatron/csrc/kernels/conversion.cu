// Layout conversions on GPUs: one end of a conversion in one pass over memory. Compiled at run time by NVRTC
// (comm/nvrtc.py), and for the CPU by the tests, which run every thread. Raw pointers and integers, no headers but ours.
#include "numbers.h"
#include "tiles.h"
#include "rotate_tiles.h"

namespace paradyse {

// What one launch does. Nothing but 64 bits wide, so the caller writes it as an array of integers.
struct EndMove {
    Section sections[kMaxSections];
    char *tensors[kMaxSections];
    char *wire;
    Int bytes_per_element;
    Int to_wire;
    Rotary rotary;

    __device__ Int wire_address() const { return reinterpret_cast<Int>(wire); }
    __device__ Row nth_row(const Section &, Int nth) const { return {nth, wire}; }
};

// The copies of some numbers, which lie `stride` bytes apart, added in ascending order and rounded once.
template <class Number, int kCount>
__device__ inline void sum_numbers(char *target, const char *source, Int copies, Int stride) {
    using Vector = Numbers<typename Number::Stored, kCount>;
    typename Number::Sum sums[kCount];
    const Vector first = *reinterpret_cast<const Vector *>(source);
#pragma unroll
    for (int index = 0; index < kCount; ++index) sums[index] = Number::widen(first.values[index]);
#pragma unroll 1
    for (Int copy = 1; copy < copies; ++copy) {
        const Vector next = *reinterpret_cast<const Vector *>(source + copy * stride);
#pragma unroll
        for (int index = 0; index < kCount; ++index) sums[index] += Number::widen(next.values[index]);
    }
    Vector rounded;
#pragma unroll
    for (int index = 0; index < kCount; ++index) rounded.values[index] = Number::round(sums[index]);
    *reinterpret_cast<Vector *>(target) = rounded;
}

template <class Number, int kCount>
__device__ inline void sum_section(const EndMove &move, const Section &section) {
    constexpr Int kSize = sizeof(typename Number::Stored), kBytes = kSize * kCount;
    const Int copies = section.extent[COPY], stride = section.wire_stride[COPY] * kSize;
    const auto sum_vectors = [&](const Lane &mine, Int lanes) {
#pragma unroll 1
        for (int index = 0; index < kVectorsInFlight; ++index) {
            const Int vector = mine.first + index * lanes;
            if (vector < mine.num_vectors)
                sum_numbers<Number, kCount>(mine.local + vector * kBytes, mine.wire + vector * kBytes, copies, stride);
        }
    };
    const auto sum_rest = [&](const Lane &mine) {
#pragma unroll 1
        for (Int byte = mine.num_vectors * kBytes; byte < section.width * kSize; byte += kSize)
            sum_numbers<Number, 1>(mine.local + byte, mine.wire + byte, copies, stride);
    };
    for_each_tile(move, section, kBytes, sum_vectors, sum_rest);
}

}  // namespace paradyse

// To the wire or from it, without sums; any copy of strided tensors as well.
PARADYSE_KERNEL(copy_sections, EndMove, 5) { paradyse::copy_section(move, move.sections[blockIdx.y]); }

// From the wire, adding copies up.
#define PARADYSE_SUM_SECTIONS(name, Number)                                         \
    PARADYSE_KERNEL(sum_sections_##name, EndMove, 5) {                              \
        const paradyse::Section &section = move.sections[blockIdx.y];               \
        constexpr int kCount = 16 / sizeof(paradyse::Number::Stored);               \
        if (paradyse::alignment_of(move, section) == 16)                            \
            paradyse::sum_section<paradyse::Number, kCount>(move, section);         \
        else                                                                        \
            paradyse::sum_section<paradyse::Number, 1>(move, section);              \
    }
PARADYSE_SUM_SECTIONS(float32, Float32)
PARADYSE_SUM_SECTIONS(float64, Float64)
PARADYSE_SUM_SECTIONS(bfloat16, BFloat16)
PARADYSE_SUM_SECTIONS(float16, Float16)

// To the wire, rotating as they go.
#define PARADYSE_ROTATE_SECTIONS(name, Number) \
    PARADYSE_KERNEL(rotate_sections_##name, EndMove, 4) { paradyse::rotate_section<paradyse::Number>(move); }
PARADYSE_ROTATE_SECTIONS(float32, Float32)
PARADYSE_ROTATE_SECTIONS(float64, Float64)
PARADYSE_ROTATE_SECTIONS(bfloat16, BFloat16)
PARADYSE_ROTATE_SECTIONS(float16, Float16)
