// The host executor: packs and unpacks layout conversions on CPUs. Raw pointers and integers, no torch headers.
//
// Large copies bypass the caches where the processor can (SSE2): what is written is sent away or read much later, and a
// cached store would first fetch the line it overwrites.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include "buffers.h"
#include "conversion.h"
#include "numbers.h"
#include "rotary.h"

namespace {

using paradyse::Int;
using paradyse::Place;
using paradyse::Rotary;
using paradyse::Section;

constexpr Int kRowsOfTask = 64;          // rows of each section that one thread copies at a time
constexpr Int kStreamedBytes = 4 << 20;  // more than this is written past the caches
constexpr Int kThreadedBytes = 1 << 20;  // less than this is copied by one thread

void copy_cached(char *target, const char *source, Int num_bytes) {
    std::memcpy(target, source, static_cast<std::size_t>(num_bytes));
}

#if defined(__SSE2__)
// `num_bytes` is a multiple of 16 and `target` is aligned to it.
void copy_streamed(char *target, const char *source, Int num_bytes) {
    auto *to = reinterpret_cast<__m128i *>(target);
    const auto *from = reinterpret_cast<const __m128i *>(source);
    Int left = num_bytes / 16;
    for (; left >= 4; left -= 4, to += 4, from += 4) {
        const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
        const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
    }
    for (; left > 0; --left) _mm_stream_si128(to++, _mm_loadu_si128(from++));
}

bool may_stream(const char *target, Int num_bytes) {
    return num_bytes >= 64 && num_bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(target) % 16 == 0;
}
#endif

void copy_piece(char *target, const char *source, Int num_bytes, bool streamed) {
#if defined(__SSE2__)
    if (streamed && may_stream(target, num_bytes)) return copy_streamed(target, source, num_bytes);
#endif
    copy_cached(target, source, num_bytes);
}

void end_streaming() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

// One end of a conversion, ready to be walked through.
struct End {
    const Section *sections;
    Int num_sections;
    std::vector<char *> tensors;
    char *wire;
    Int bytes_per_element;
    bool to_wire, streamed;
    Rotary rotary;
};

template <class Visit>
void for_each_piece(const End &end, const Section &section, Int first, Int stop, Visit visit) {
    for (Int row = first; row < stop; ++row) {
        const Place start = row_place(section, row, end.to_wire);
        for (Int group = 0; group < section.extent[paradyse::GROUP]; ++group)
            for (Int head = 0; head < section.extent[paradyse::HEAD]; ++head)
                visit(piece_place(section, start, group, head));
    }
}

void copy_rows(const End &end, const Section &section, Int first, Int stop) {
    const Int size = end.bytes_per_element, num_bytes = section.width * size;
    char *tensor = end.tensors[static_cast<std::size_t>(section.tensor)];
    for_each_piece(end, section, first, stop, [&](Place place) {
        char *local = tensor + place.local * size, *wire = end.wire + place.wire * size;
        if (end.to_wire)
            copy_piece(wire, local, num_bytes, end.streamed);
        else
            copy_piece(local, wire, num_bytes, end.streamed);
    });
}

template <class Number>
void sum_piece(char *local, const char *wire, const Section &section) {
    using Stored = typename Number::Stored;
    auto *target = reinterpret_cast<Stored *>(local);
    const auto *source = reinterpret_cast<const Stored *>(wire);
    const Int copies = section.extent[paradyse::COPY], stride = section.wire_stride[paradyse::COPY];
    for (Int element = 0; element < section.width; ++element) {
        auto sum = Number::widen(source[element]);
        for (Int copy = 1; copy < copies; ++copy) sum += Number::widen(source[copy * stride + element]);
        target[element] = Number::round(sum);
    }
}

template <class Number>
void sum_rows(const End &end, const Section &section, Int first, Int stop) {
    const Int size = end.bytes_per_element;
    char *tensor = end.tensors[static_cast<std::size_t>(section.tensor)];
    for_each_piece(end, section, first, stop, [&](Place place) {
        sum_piece<Number>(tensor + place.local * size, end.wire + place.wire * size, section);
    });
}

// In halves, the first half's partners are behind it and the second half's before it.
template <class Number>
void rotate_head(const Rotary &rotary, Int table, const char *from, char *to) {
    using Stored = typename Number::Stored;
    using Sum = typename Number::Sum;
    const auto *source = reinterpret_cast<const Stored *>(from);
    auto *target = reinterpret_cast<Stored *>(to);
    const auto *cosines = reinterpret_cast<const Sum *>(rotary.cosines) + table;
    const auto *sines = reinterpret_cast<const Sum *>(rotary.sines) + table;
    const Int half = rotary.num_rotated / 2;
    const auto turn = [&](Int column, Int partner) {
        target[column] = paradyse::rotated<Number>(source[column], source[partner], cosines[column], sines[column]);
    };
    if (rotary.interleaved) {
        for (Int column = 0; column < rotary.num_rotated; ++column) turn(column, column ^ 1);
    } else {
        for (Int column = 0; column < half; ++column) turn(column, column + half);
        for (Int column = half; column < 2 * half; ++column) turn(column, column - half);
    }
    const Int rest = rotary.head_dim - rotary.num_rotated;
    copy_cached(to + rotary.num_rotated * Int(sizeof(Stored)), from + rotary.num_rotated * Int(sizeof(Stored)),
                rest * Int(sizeof(Stored)));
}

template <class Number>
void rotate_rows(const End &end, const Section &section, Int first, Int stop) {
    const Int size = end.bytes_per_element;
    const char *tensor = end.tensors[static_cast<std::size_t>(section.tensor)];
    for_each_piece(end, section, first, stop, [&](Place place) {
        const Int table = table_place(end.rotary, &section - end.sections, place.local);
        for (Int element = 0; element < section.width; element += end.rotary.head_dim)
            rotate_head<Number>(end.rotary, table, tensor + (place.local + element) * size,
                                end.wire + (place.wire + element) * size);
    });
}

using Rows = void (*)(const End &, const Section &, Int, Int);

template <template <class> class Work>
Rows of_number(std::string_view number) {
    if (number == "float32") return Work<paradyse::Float32>::rows;
    if (number == "float64") return Work<paradyse::Float64>::rows;
    if (number == "bfloat16") return Work<paradyse::BFloat16>::rows;
    if (number == "float16") return Work<paradyse::Float16>::rows;
    throw std::invalid_argument("Numbers of type " + std::string(number) + " are neither added up nor rotated.");
}

template <class Number>
struct Summed {
    static constexpr Rows rows = sum_rows<Number>;
};

template <class Number>
struct Rotated {
    static constexpr Rows rows = rotate_rows<Number>;
};

// What is done with the rows of a section.
Rows rows_of(const End &end, Int index, std::string_view number) {
    if (!end.to_wire && sums_copies(end.sections[index])) return of_number<Summed>(number);
    if (end.rotary.num_rotated > 0 && end.rotary.stride[index] > 0) return of_number<Rotated>(number);
    return copy_rows;
}

// Tasks take a few rows of every section at a time, so that sections that share cache lines meet in the cache.
void walk(const End &end, const std::vector<Rows> &rows_of_section, int num_threads) {
    Int num_tasks = 0;
    for (Int index = 0; index < end.num_sections; ++index) {
        const Int tasks = (num_rows(end.sections[index], end.to_wire) + kRowsOfTask - 1) / kRowsOfTask;
        num_tasks = tasks > num_tasks ? tasks : num_tasks;
    }
#pragma omp parallel num_threads(num_threads) if (num_threads > 1)
    {
#pragma omp for schedule(static)
        for (Int task = 0; task < num_tasks; ++task) {
            for (Int index = 0; index < end.num_sections; ++index) {
                const Section &section = end.sections[index];
                const Int rows = num_rows(section, end.to_wire), first = task * kRowsOfTask;
                const Int stop = first + kRowsOfTask < rows ? first + kRowsOfTask : rows;
                if (first < stop) rows_of_section[static_cast<std::size_t>(index)](end, section, first, stop);
            }
        }
        end_streaming();
    }
}

// Moves one end's tensors to or from the wire; all pointers are addresses. `rotary` is the integers of a Rotary.
void move(const pybind11::bytes &table, const std::vector<std::uintptr_t> &tensors, std::uintptr_t wire, bool to_wire,
          Int bytes_per_element, const std::string &number, int num_threads, const pybind11::bytes &rotary) {
    const std::string_view bytes = table, turns = rotary;
    End end{reinterpret_cast<const Section *>(bytes.data()), static_cast<Int>(bytes.size() / sizeof(Section)), {},
            reinterpret_cast<char *>(wire), bytes_per_element, to_wire, false, {}};
    for (const std::uintptr_t address : tensors) end.tensors.push_back(reinterpret_cast<char *>(address));
    if (turns.size() != sizeof(Rotary)) throw std::invalid_argument("That is not a Rotary.");
    std::memcpy(&end.rotary, turns.data(), sizeof(Rotary));
    Int num_bytes = 0;
    std::vector<Rows> rows;
    for (Int index = 0; index < end.num_sections; ++index) {
        const Section &section = end.sections[index];
        num_bytes += num_rows(section, to_wire) * num_pieces(section) * section.width * bytes_per_element;
        rows.push_back(rows_of(end, index, number));
    }
    end.streamed = num_bytes > kStreamedBytes;
    const pybind11::gil_scoped_release unlocked;
    walk(end, rows, num_bytes < kThreadedBytes ? 1 : num_threads);
}

}  // namespace

PYBIND11_MODULE(_host, module) {
    module.doc() = "Packs and unpacks layout conversions on CPUs; see comm/host.py.";
    module.attr("SECTION_BYTES") = sizeof(Section);
    module.attr("THREADED") =
#ifdef _OPENMP
        true;
#else
        false;
#endif
    module.def("move", &move);
    module.def("kept_bytes", [] { return paradyse::kept().num_bytes(); });
    module.def("let_go", [] { paradyse::kept().keep(0, 0); });
    pybind11::class_<paradyse::Buffer>(module, "Buffer", pybind11::buffer_protocol())
        .def(pybind11::init<std::size_t>())
        .def_buffer([](paradyse::Buffer &buffer) {
            const auto count = static_cast<pybind11::ssize_t>(buffer.num_bytes());
            return pybind11::buffer_info(static_cast<std::uint8_t *>(buffer.address()), count);
        });
}
