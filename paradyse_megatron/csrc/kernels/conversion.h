// The index arithmetic of layout conversions, for host C++ and for CUDA (NVRTC): one end of a conversion as a few
// affine sections. No standard library, 64-bit everywhere; the twin of layouts/section.py, which makes the tables.
//
// An end maps a rank's own tensors ("local") to the one buffer that travels ("wire") and back. A section is a rectangle
// of rows (peer, copy, token, batch) of pieces (group, head) of `width` elements that lie together on both sides.
// All offsets count elements. Extents and strides are in the table, so one kernel serves every length.
//
// To the wire, every row is copied. From the wire, a section whose copies share one local place (extent > 1, local
// stride 0) is summed over them: ascending, in accumulator precision, rounded once.
#ifndef PARADYSE_CONVERSION_H
#define PARADYSE_CONVERSION_H

#ifdef __CUDACC__
#define PARADYSE_INLINE __host__ __device__ __forceinline__
#else
#define PARADYSE_INLINE inline
#endif

namespace paradyse {

using Int = long long;

#ifdef __CUDACC__
// Out of line: each place that divides would have its own copy of some hundred instructions.
__device__ __noinline__ inline Int long_quotient(Int number, Int by) { return number / by; }
#endif

// number / by of non-negative numbers; on GPUs, which divide 64 bits slowly, by 32 bits where they are enough.
PARADYSE_INLINE Int quotient(Int number, Int by) {
#ifdef __CUDA_ARCH__
    if ((number | by) >> 32) return long_quotient(number, by);
    return static_cast<unsigned>(number) / static_cast<unsigned>(by);
#else
    return number / by;
#endif
}

enum Axis { PEER, COPY, TOKEN, BATCH, GROUP, HEAD, NUM_AXES };

// Nothing but 64-bit integers: a table of them is an array of int64, in this order.
struct Section {
    Int tensor;  // which of the end's tensors
    Int width;
    Int local_start, wire_start;
    Int extent[NUM_AXES], local_stride[NUM_AXES], wire_stride[NUM_AXES];
};

struct Place {
    Int local, wire;
};

// Whether coming from the wire copies are to be added up.
PARADYSE_INLINE bool sums_copies(const Section &section) {
    return section.extent[COPY] > 1 && section.local_stride[COPY] == 0;
}

// Copies that are rows of their own: one when they are summed.
PARADYSE_INLINE Int copy_rows(const Section &section, bool to_wire) {
    return !to_wire && sums_copies(section) ? 1 : section.extent[COPY];
}

PARADYSE_INLINE Int num_rows(const Section &section, bool to_wire) {
    return section.extent[PEER] * copy_rows(section, to_wire) * section.extent[TOKEN] * section.extent[BATCH];
}

// Pieces of a row, group after group.
PARADYSE_INLINE Int num_pieces(const Section &section) { return section.extent[GROUP] * section.extent[HEAD]; }

// Where a row begins; batch runs fastest, then token, copy, peer.
PARADYSE_INLINE Place row_place(const Section &section, Int row, bool to_wire) {
    const Int tokens = quotient(row, section.extent[BATCH]), batch = row - tokens * section.extent[BATCH];
    const Int copied = quotient(tokens, section.extent[TOKEN]), token = tokens - copied * section.extent[TOKEN];
    const Int copies = copy_rows(section, to_wire), peer = quotient(copied, copies), copy = copied - peer * copies;
    return {section.local_start + peer * section.local_stride[PEER] + copy * section.local_stride[COPY] +
                token * section.local_stride[TOKEN] + batch * section.local_stride[BATCH],
            section.wire_start + peer * section.wire_stride[PEER] + copy * section.wire_stride[COPY] +
                token * section.wire_stride[TOKEN] + batch * section.wire_stride[BATCH]};
}

// Where a piece of the row that begins at `row` begins.
PARADYSE_INLINE Place piece_place(const Section &section, Place row, Int group, Int head) {
    return {row.local + group * section.local_stride[GROUP] + head * section.local_stride[HEAD],
            row.wire + group * section.wire_stride[GROUP] + head * section.wire_stride[HEAD]};
}

}  // namespace paradyse

#endif
