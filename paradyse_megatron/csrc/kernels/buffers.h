// Large buffers that are kept for the next use, as a GPU's allocator does: the C library gives memory of this size back to
// the system at once, and to get it again costs more than to fill it, page by page zeroed and mapped.
//
// All of it runs under Python's lock.
#ifndef PARADYSE_BUFFERS_H
#define PARADYSE_BUFFERS_H

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <new>

namespace paradyse {

constexpr std::size_t kHugePage = 2 << 20;        // of Linux on x86-64 and arm64
constexpr std::size_t kKeptBuffers = 8;           // as many as a layer's conversions use at a time, and some
constexpr std::size_t kKeptBytes = std::size_t{1} << 30;  // that nobody uses

// Pages for so many bytes, large ones where the system has them.
struct Pages {
    void *address;
    std::size_t num_bytes;

    static Pages fresh(std::size_t num_bytes) {
        void *address = std::aligned_alloc(kHugePage, num_bytes);
        if (!address) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
        madvise(address, num_bytes, MADV_HUGEPAGE);
#endif
        return {address, num_bytes};
    }
};

// The last pages that were let go, latest first.
class Kept {
public:
    // Some that are large enough, and no more than a quarter too large, if there are any.
    bool take(std::size_t num_bytes, Pages &found) {
        for (auto each = pages_.begin(); each != pages_.end(); ++each) {
            if (each->num_bytes < num_bytes || each->num_bytes > num_bytes + num_bytes / 4) continue;
            found = *each;
            num_bytes_ -= each->num_bytes;
            pages_.erase(each);
            return true;
        }
        return false;
    }

    void put(Pages pages) {
        pages_.push_front(pages);
        num_bytes_ += pages.num_bytes;
        keep(kKeptBuffers, kKeptBytes);
    }

    void keep(std::size_t most_buffers, std::size_t most_bytes) {
        while (pages_.size() > most_buffers || num_bytes_ > most_bytes) {
            num_bytes_ -= pages_.back().num_bytes;
            std::free(pages_.back().address);
            pages_.pop_back();
        }
    }

    std::size_t num_bytes() const { return num_bytes_; }

private:
    std::list<Pages> pages_;
    std::size_t num_bytes_ = 0;
};

inline Kept &kept() {
    static Kept *const never_destroyed = new Kept;  // buffers may outlive what ends with the process
    return *never_destroyed;
}

// Memory of a tensor, while that lives.
class Buffer {
public:
    explicit Buffer(std::size_t num_bytes) : num_bytes_(num_bytes) {
        const std::size_t rounded = (num_bytes + kHugePage - 1) / kHugePage * kHugePage;
        if (kept().take(rounded, pages_)) return;
        try {
            pages_ = Pages::fresh(rounded);
        } catch (const std::bad_alloc &) {
            kept().keep(0, 0);
            pages_ = Pages::fresh(rounded);
        }
    }
    ~Buffer() { kept().put(pages_); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    void *address() const { return pages_.address; }
    std::size_t num_bytes() const { return num_bytes_; }

private:
    Pages pages_{};
    std::size_t num_bytes_;
};

}  // namespace paradyse

#endif
