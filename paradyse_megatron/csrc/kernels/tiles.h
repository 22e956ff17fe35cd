// What the GPU kernels share: how threads are dealt to the pieces of a section, and the copies themselves.
//
// Each section has its own row of blocks (blockIdx.y). Its pieces are cut into tiles; a few neighbouring threads, the
// lanes, take a tile together, vector by vector. A vector is the widest access that all places of the section allow, 16
// bytes in the usual case. What a piece has beyond whole vectors one lane moves number by number.
//
// A Move says what one launch does. All of them have `sections`, `tensors`, `bytes_per_element`, `to_wire`, `rotary`, and
//     wire_address()         bits of the addresses where the other side may begin
//     nth_row(section, n)    the row that comes n-th, and where the other side's places are counted from
#ifndef PARADYSE_TILES_H
#define PARADYSE_TILES_H

#include "conversion.h"
#include "rotary.h"

namespace paradyse {

constexpr int kVectorsInFlight = 4;  // loads of a thread before its first store
constexpr int kThreads = 128;        // of a block; THREADS in comm/launch.py
constexpr Int kMostLanes = 32;       // a warp
constexpr Int kLanesOfLine = 8;      // 16 bytes each: a line of the cache

struct alignas(16) Vector16 {
    unsigned long long low, high;
};

// The largest power of two, 16 at most, of which all places of a section are multiples on both sides; bytes.
template <class Move>
__device__ inline Int alignment_of(const Move &move, const Section &section) {
    Int elements = section.local_start | section.wire_start;
    for (int axis = 0; axis < NUM_AXES; ++axis)
        if (section.extent[axis] > 1) elements |= section.local_stride[axis] | section.wire_stride[axis];
    const Int addresses = reinterpret_cast<Int>(move.tensors[section.tensor]) | move.wire_address();
    const Int bits = elements * move.bytes_per_element | addresses | 16;
    return bits & -bits;
}

struct Row {
    Int number;
    char *wire;
};

// What a lane does of a tile: `first` is its first vector, `num_vectors` are whole ones of the piece.
struct Lane {
    char *local, *wire;  // where the piece begins
    Int first, num_vectors;
};

// Calls visit(lane, number of lanes) for each tile of this thread, and visit_rest(lane) once a piece if it has a rest.
template <class Move, class Visit, class VisitRest>
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
        const Int nth = quotient(piece, pieces), in_row = piece - nth * pieces;
        const Row row = move.nth_row(section, nth);
        const Int group = quotient(in_row, section.extent[HEAD]), head = in_row - group * section.extent[HEAD];
        const Place place = piece_place(section, row_place(section, row.number, to_wire), group, head);
        const Lane mine{move.tensors[section.tensor] + place.local * size, row.wire + place.wire * size,
                        in_piece * vectors_of_tile + lane, num_vectors};
        visit(mine, lanes);
        if (has_rest && in_piece == tiles_of_piece - 1 && lane == 0) visit_rest(mine);
    }
}

template <class Vector, class Move>
__device__ inline void copy_vectors(const Move &move, const Section &section) {
    const bool to_wire = move.to_wire != 0;
    const Int piece_bytes = section.width * move.bytes_per_element;
    const auto copy_whole = [&](const Lane &mine, Int lanes) {
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
    for_each_tile(move, section, sizeof(Vector), copy_whole, copy_rest);
}

// A section by the widest accesses that it allows.
template <class Move>
__device__ inline void copy_section(const Move &move, const Section &section) {
    switch (alignment_of(move, section)) {
        case 16: return copy_vectors<Vector16>(move, section);
        case 8: return copy_vectors<unsigned long long>(move, section);
        case 4: return copy_vectors<unsigned int>(move, section);
        case 2: return copy_vectors<unsigned short>(move, section);
        default: return copy_vectors<unsigned char>(move, section);
    }
}

}  // namespace paradyse

// Of every kernel that deals tiles; so many blocks at once on a multiprocessor bound the registers.
#define PARADYSE_KERNEL(name, Move, kBlocksAtOnce)                                        \
    extern "C" __global__ void __launch_bounds__(paradyse::kThreads, kBlocksAtOnce) name( \
        const __grid_constant__ paradyse::Move move)

#endif
