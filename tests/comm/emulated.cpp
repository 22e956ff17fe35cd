// The GPU kernels' own source as a shared library; built by tests/comm/emulated.py.
#include "shim.h"

// Read by the sanitizer when it is loaded, which does not see what Python has put into the environment.
extern "C" const char *__ubsan_default_options() { return "log_path=" COMPLAINTS; }

namespace {

struct Kernel {
    const char *name;
    long long num_bytes;  // of its argument
    void (*run)(const void *, unsigned, unsigned, unsigned);
};

template <class Argument, void (*kernel)(Argument)>
constexpr Kernel kernel_of(const char *name) {
    return {name, sizeof(Argument), [](const void *bytes, unsigned blocks, unsigned sections, unsigned threads) {
                Argument argument;
                std::memcpy(&argument, bytes, sizeof(argument));
                run(kernel, argument, blocks, sections, threads);
            }};
}

template <void (*kernel)(paradyse::EndMove)>
constexpr Kernel of_end(const char *name) {
    return kernel_of<paradyse::EndMove, kernel>(name);
}

template <void (*kernel)(paradyse::PeerMove)>
constexpr Kernel to_peers(const char *name) {
    return kernel_of<paradyse::PeerMove, kernel>(name);
}

constexpr Kernel kKernels[] = {of_end<copy_sections>("copy_sections"),
                               of_end<sum_sections_float32>("sum_sections_float32"),
                               of_end<sum_sections_float64>("sum_sections_float64"),
                               of_end<sum_sections_bfloat16>("sum_sections_bfloat16"),
                               of_end<sum_sections_float16>("sum_sections_float16"),
                               of_end<rotate_sections_float32>("rotate_sections_float32"),
                               of_end<rotate_sections_float64>("rotate_sections_float64"),
                               of_end<rotate_sections_bfloat16>("rotate_sections_bfloat16"),
                               of_end<rotate_sections_float16>("rotate_sections_float16"),
                               to_peers<store_sections>("store_sections"),
                               to_peers<store_rotated_float32>("store_rotated_float32"),
                               to_peers<store_rotated_float64>("store_rotated_float64"),
                               to_peers<store_rotated_bfloat16>("store_rotated_bfloat16"),
                               to_peers<store_rotated_float16>("store_rotated_float16"),
                               kernel_of<paradyse::Meeting, meet_peers>("meet_peers")};

}  // namespace

enum Outcome { DONE, UNKNOWN, GAVE_UP };

extern "C" int launch(const char *name, const void *argument, long long num_bytes, unsigned blocks, unsigned sections,
                      unsigned threads) {
    for (const Kernel &kernel : kKernels) {
        if (std::strcmp(kernel.name, name) != 0 || kernel.num_bytes != num_bytes) continue;
        gave_up = false;
        kernel.run(argument, blocks, sections, threads);
        return gave_up ? GAVE_UP : DONE;
    }
    return UNKNOWN;
}

extern "C" long long window_start(long long num_peers, long long window_bytes, long long number) {
    return paradyse::window_start(num_peers, window_bytes, number);
}
