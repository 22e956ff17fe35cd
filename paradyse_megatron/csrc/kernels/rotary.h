// Rotary embedding (RoFormer, arXiv 2104.09864) of queries and keys on their way to the wire, for host C++ and for CUDA.
// With n the first `num_rotated` numbers of a head, the rest of which is copied, number j of it becomes
//     n[j] cosines[token][j] + n[partner of j] sines[token][j]
// in the accumulator's precision, rounded once. The sines bring the sign of a rotation, or of its inverse.
#ifndef PARADYSE_ROTARY_H
#define PARADYSE_ROTARY_H

#include "conversion.h"
#include "numbers.h"

namespace paradyse {

constexpr int kMaxSections = 4;  // and tensors, of a launch; MAX_SECTIONS in comm/launch.py

// Nothing but 64 bits wide. What is said of each section lets a place in its tensor tell the token that it is of
// (layouts/rotary.py): place % within / stride. A stride of 0 says that the section is not rotated.
struct Rotary {
    const char *cosines, *sines;  // [tokens, num_rotated] of the accumulator's type
    Int head_dim, num_rotated;
    Int interleaved;  // partners are neighbours; else they are half of num_rotated apart
    Int first_token;  // of the tensors, as a row of the tables
    Int within[kMaxSections], stride[kMaxSections];
};

// The row of the tables for what lies at a place of a section's tensor, times its length.
PARADYSE_INLINE Int table_place(const Rotary &rotary, Int section, Int local) {
    const Int in_run = local - quotient(local, rotary.within[section]) * rotary.within[section];
    return (rotary.first_token + quotient(in_run, rotary.stride[section])) * rotary.num_rotated;
}

PARADYSE_INLINE Int partner_of(const Rotary &rotary, Int column) {
    if (rotary.interleaved) return column ^ 1;
    const Int half = rotary.num_rotated / 2;
    return column < half ? column + half : column - half;
}

template <class Number>
PARADYSE_INLINE typename Number::Stored rotated(typename Number::Stored number, typename Number::Stored partner,
                                                typename Number::Sum cosine, typename Number::Sum sine) {
    return Number::round(Number::widen(number) * cosine + Number::widen(partner) * sine);
}

}  // namespace paradyse

#endif
