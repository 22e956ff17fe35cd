// Numbers that are summed: how each type is widened to its accumulator and rounded back (to nearest, ties to even), by
// integer arithmetic alone, so that host and device agree bit by bit. No standard library.
#ifndef PARADYSE_NUMBERS_H
#define PARADYSE_NUMBERS_H

#include "conversion.h"

namespace paradyse {

union FloatBits {
    float value;
    unsigned bits;
};

PARADYSE_INLINE float float_of(unsigned bits) {
    FloatBits both;
    both.bits = bits;
    return both.value;
}

PARADYSE_INLINE unsigned bits_of(float value) {
    FloatBits both;
    both.value = value;
    return both.bits;
}

struct Float32 {
    using Stored = float;
    using Sum = float;
    static PARADYSE_INLINE Sum widen(Stored number) { return number; }
    static PARADYSE_INLINE Stored round(Sum number) { return number; }
};

struct Float64 {
    using Stored = double;
    using Sum = double;
    static PARADYSE_INLINE Sum widen(Stored number) { return number; }
    static PARADYSE_INLINE Stored round(Sum number) { return number; }
};

struct BFloat16 {
    using Stored = unsigned short;
    using Sum = float;
    static PARADYSE_INLINE Sum widen(Stored number) { return float_of(static_cast<unsigned>(number) << 16); }
    static PARADYSE_INLINE Stored round(Sum number) {
        const unsigned bits = bits_of(number);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;  // not a number
        return static_cast<Stored>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
};

struct Float16 {
    using Stored = unsigned short;
    using Sum = float;
    static PARADYSE_INLINE Sum widen(Stored number) {
        const unsigned sign = (number & 0x8000u) << 16, exponent = number >> 10 & 31u, fraction = number & 0x3ffu;
        if (exponent == 31) return float_of(sign | 0x7f800000u | fraction << 13);
        if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
        const float tiny = static_cast<float>(fraction) * float_of(0x33800000u);  // subnormal: units of 2^-24
        return float_of(sign | bits_of(tiny));
    }
    static PARADYSE_INLINE Stored round(Sum number) {
        const unsigned bits = bits_of(number), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
        if (magnitude > 0x7f800000u) return static_cast<Stored>(sign | 0x7e00u);   // not a number
        if (magnitude >= 0x477ff000u) return static_cast<Stored>(sign | 0x7c00u);  // 65520 and more: infinite
        if (magnitude < 0x38800000u)  // subnormal: adding 0.5 leaves units of 2^-24 in the lowest bits, rounded
            return static_cast<Stored>(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u));
        return static_cast<Stored>(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
    }
};

// So many at once, as one access.
template <class Stored, int kCount>
struct alignas(sizeof(Stored) * kCount) Numbers {
    Stored values[kCount];
};

}  // namespace paradyse

#endif
