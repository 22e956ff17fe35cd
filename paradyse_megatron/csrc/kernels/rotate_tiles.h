// What the GPU kernels that rotate share: a section to the wire, by rotary embedding (rotary.h).
//
// A thread reads its numbers and their partners, so each is read twice, the second time from a cache.
#ifndef PARADYSE_ROTATE_TILES_H
#define PARADYSE_ROTATE_TILES_H

#include "rotary.h"
#include "tiles.h"

namespace paradyse {

// kCount numbers of a piece from `first` on, which lie in one head and with one kind of partner.
template <class Number, int kCount>
__device__ inline void rotate_numbers(const Rotary &rotary, Int table, const char *from, char *to, Int first) {
    using Vector = Numbers<typename Number::Stored, kCount>;
    constexpr int kWidest = 16 / sizeof(typename Number::Sum), kFactors = kWidest < kCount ? kWidest : kCount;
    using Factors = Numbers<typename Number::Sum, kFactors>;
    constexpr Int kSize = sizeof(typename Number::Stored);
    const Int column = first - quotient(first, rotary.head_dim) * rotary.head_dim;
    const Vector mine = *reinterpret_cast<const Vector *>(from + first * kSize);
    if (column >= rotary.num_rotated) {
        *reinterpret_cast<Vector *>(to + first * kSize) = mine;
        return;
    }
    const bool in_vector = kCount > 1 && rotary.interleaved;
    const Int apart = in_vector ? 0 : partner_of(rotary, column) - column;
    const Vector other = *reinterpret_cast<const Vector *>(from + (first + apart) * kSize);
    const auto *cosines = reinterpret_cast<const typename Number::Sum *>(rotary.cosines) + table + column;
    const auto *sines = reinterpret_cast<const typename Number::Sum *>(rotary.sines) + table + column;
    Vector turned;
#pragma unroll
    for (int part = 0; part < kCount; part += kFactors) {
        const Factors cosine = *reinterpret_cast<const Factors *>(cosines + part);
        const Factors sine = *reinterpret_cast<const Factors *>(sines + part);
#pragma unroll
        for (int index = part; index < part + kFactors; ++index)
            turned.values[index] = rotated<Number>(
                mine.values[index], in_vector ? mine.values[index ^ (kCount > 1)] : other.values[index],
                cosine.values[index - part], sine.values[index - part]);
    }
    *reinterpret_cast<Vector *>(to + first * kSize) = turned;
}

template <class Number, int kCount, class Move>
__device__ inline void rotate_pieces(const Move &move, const Section &section) {
    constexpr Int kSize = sizeof(typename Number::Stored);
    const auto rotate_vectors = [&](const Lane &mine, Int lanes) {
        const Int local = (mine.local - move.tensors[section.tensor]) / kSize;
        const Int table = table_place(move.rotary, blockIdx.y, local);
#pragma unroll 1
        for (int index = 0; index < kVectorsInFlight; ++index) {
            const Int vector = mine.first + index * lanes;
            if (vector < mine.num_vectors)
                rotate_numbers<Number, kCount>(move.rotary, table, mine.local, mine.wire, vector * kCount);
        }
    };
    // A piece is whole heads, which are whole vectors.
    for_each_tile(move, section, kSize * kCount, rotate_vectors, [](const Lane &) {});
}

// The section of this row of blocks, by 16 bytes at a time where that keeps heads and partners apart.
template <class Number, class Move>
__device__ inline void rotate_section(const Move &move) {
    constexpr int kCount = 16 / sizeof(typename Number::Stored);
    const Section &section = move.sections[blockIdx.y];
    const Rotary &rotary = move.rotary;
    const Int parts = rotary.interleaved ? rotary.num_rotated : rotary.num_rotated / 2;
    const bool whole = rotary.head_dim % kCount == 0 && parts % kCount == 0;
    if (whole && alignment_of(move, section) == 16)
        rotate_pieces<Number, kCount>(move, section);
    else
        rotate_pieces<Number, 1>(move, section);
}

}  // namespace paradyse

#endif
