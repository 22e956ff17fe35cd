// Layout conversions on GPUs: one end of a conversion in one pass over memory. Compiled at run time by NVRTC
// (comm/nvrtc.py), and for the CPU by the tests, which run every thread. Raw pointers and integers, no headers but ours.
//
// Each section has its own row of blocks (blockIdx.y). Its pieces are cut into tiles; a few neighbouring threads, the
// lanes, take a tile together, vector by vector. A vector is the widest access that all places of the section allow, 16
// bytes in the usual case. What a piece has beyond whole vectors one lane moves number by number.
#include "conversion.h"
#include "numbers.h"

namespace paradyse {

constexpr int kMaxSections = 4;      // and tensors; MAX_SECTIONS in comm/launch.py
constexpr int kVectorsInFlight = 4;  // loads of a thread before its first store
constexpr int kThreads = 128;        // of a block; THREADS in comm/launch.py
constexpr int kBlocksAtOnce = 5;     // on a multiprocessor: bounds the registers
constexpr Int kMostLanes = 32;       // a warp
constexpr Int kLanesOfLine = 8;      // 16 bytes each: a line of the cache

// What one launch does. Nothing but 64 bits wide, so the caller writes it as an array of integers.
struct Move {
    Section sections[kMaxSections];
    char *tensors[kMaxSections];
    char *wire;
    Int bytes_per_element;
    Int to_wire;
};

struct alignas(16) Vector16 {
    unsigned long long low, high;
};

template <class Stored, int kCount>
struct alignas(sizeof(Stored) * kCount) Numbers {
    Stored values[kCount];
};

// The largest power of two, 16 at most, of which all places of a section are multiples on both sides; bytes.
__device__ inline Int alignment_of(const Move &move, const Section &section) {
    Int elements = section.local_start | section.wire_start;
    for (int axis = 0; axis < NUM_AXES; ++axis)
        if (section.extent[axis] > 1) elements |= section.local_stride[axis] | section.wire_stride[axis];
    const Int addresses = reinterpret_cast<Int>(move.tensors[section.tensor]) | reinterpret_cast<Int>(move.wire);
    const Int bits = elements * move.bytes_per_element | addresses | 16;
    return bits & -bits;
}

// What a lane does of a tile: `first` is its first vector, `num_vectors` are whole ones of the piece.
struct Lane {
    char *local, *wire;  // where the piece begins
    Int first, num_vectors;
};

// Calls visit(lane, number of lanes) for each tile of this thread, and visit_rest(lane) once a piece if it has a rest.
template <class Visit, class VisitRest>
__device__ inline void for_each_tile(const Move &move, const Section &section, Int bytes_of_vector, Visit visit,
                                     VisitRest visit_rest) {
    const bool to_wire = move.to_wire != 0;
    const Int size = move.bytes_per_element, piece_bytes = section.width * size;
    const Int num_vectors = quotient(piece_bytes, bytes_of_vector);
    Int lanes = 1;
    while (lanes < kMostLanes && lanes < num_vectors && (lanes < kLanesOfLine || lanes * kVectorsInFlight < num_vectors))
        lanes *= 2;
    const Int vectors_of_tile = lanes * kVectorsInFlight;
    // A rest is a vector more, cut short.
    const bool has_rest = num_vectors * bytes_of_vector < piece_bytes;
    const Int tiles_of_piece = quotient(num_vectors + has_rest + vectors_of_tile - 1, vectors_of_tile);
    const Int pieces = num_pieces(section), num_tiles = num_rows(section, to_wire) * pieces * tiles_of_piece;
    const Int thread = static_cast<Int>(blockIdx.x) * blockDim.x + threadIdx.x;
    const Int num_threads = static_cast<Int>(gridDim.x) * blockDim.x;
    const Int lane = thread & (lanes - 1), step = quotient(num_threads, lanes);
    for (Int tile = quotient(thread, lanes); tile < num_tiles; tile += step) {
        const Int piece = quotient(tile, tiles_of_piece), in_piece = tile - piece * tiles_of_piece;
        const Int row = quotient(piece, pieces), in_row = piece - row * pieces;
        const Int group = quotient(in_row, section.extent[HEAD]), head = in_row - group * section.extent[HEAD];
        const Place place = piece_place(section, row_place(section, row, to_wire), group, head);
        const Lane mine{move.tensors[section.tensor] + place.local * size, move.wire + place.wire * size,
                        in_piece * vectors_of_tile + lane, num_vectors};
        visit(mine, lanes);
        if (has_rest && in_piece == tiles_of_piece - 1 && lane == 0) visit_rest(mine);
    }
}

template <class Vector>
__device__ inline void copy_section(const Move &move, const Section &section) {
    const bool to_wire = move.to_wire != 0;
    const Int piece_bytes = section.width * move.bytes_per_element;
    const auto copy_vectors = [&](const Lane &mine, Int lanes) {
        const auto *source = reinterpret_cast<const Vector *>(to_wire ? mine.local : mine.wire) + mine.first;
        auto *target = reinterpret_cast<Vector *>(to_wire ? mine.wire : mine.local) + mine.first;
        Vector held[kVectorsInFlight];
#pragma unroll
        for (int index = 0; index < kVectorsInFlight; ++index)
            if (mine.first + index * lanes < mine.num_vectors) held[index] = source[index * lanes];
#pragma unroll
        for (int index = 0; index < kVectorsInFlight; ++index)
            if (mine.first + index * lanes < mine.num_vectors) target[index * lanes] = held[index];
    };
    const auto copy_rest = [&](const Lane &mine) {
        const char *source = to_wire ? mine.local : mine.wire;
        char *target = to_wire ? mine.wire : mine.local;
#pragma unroll 1
        for (Int byte = mine.num_vectors * sizeof(Vector); byte < piece_bytes; ++byte) target[byte] = source[byte];
    };
    for_each_tile(move, section, sizeof(Vector), copy_vectors, copy_rest);
}

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
__device__ inline void sum_section(const Move &move, const Section &section) {
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
extern "C" __global__ void __launch_bounds__(paradyse::kThreads, paradyse::kBlocksAtOnce) copy_sections(const __grid_constant__ paradyse::Move move) {
    const paradyse::Section &section = move.sections[blockIdx.y];
    switch (paradyse::alignment_of(move, section)) {
        case 16: return paradyse::copy_section<paradyse::Vector16>(move, section);
        case 8: return paradyse::copy_section<unsigned long long>(move, section);
        case 4: return paradyse::copy_section<unsigned int>(move, section);
        case 2: return paradyse::copy_section<unsigned short>(move, section);
        default: return paradyse::copy_section<unsigned char>(move, section);
    }
}

// From the wire, adding copies up.
#define PARADYSE_SUM_SECTIONS(name, Number)                                                         \
    extern "C" __global__ void __launch_bounds__(paradyse::kThreads, paradyse::kBlocksAtOnce) sum_sections_##name(const __grid_constant__ paradyse::Move move) {   \
        const paradyse::Section &section = move.sections[blockIdx.y];                               \
        constexpr int kCount = 16 / sizeof(paradyse::Number::Stored);                               \
        if (paradyse::alignment_of(move, section) == 16)                                            \
            paradyse::sum_section<paradyse::Number, kCount>(move, section);                         \
        else                                                                                        \
            paradyse::sum_section<paradyse::Number, 1>(move, section);                              \
    }
PARADYSE_SUM_SECTIONS(float32, Float32)
PARADYSE_SUM_SECTIONS(float64, Float64)
PARADYSE_SUM_SECTIONS(bfloat16, BFloat16)
PARADYSE_SUM_SECTIONS(float16, Float16)
