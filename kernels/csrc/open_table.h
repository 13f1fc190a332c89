// An open-addressing hash table of plain slots: power-of-two size, linear probing, grown before it is 0.6 full.
//
// A Slot is a trivial struct that is empty when all its bytes are zero and has
//     bool empty() const;                 the occupied marker, which must not take a value from the key
//     bool same_key(const Slot&) const;   exact comparison
//     uint64_t hash() const;              of the key
// A slot's index is the high bits of its hash. Doubling the table therefore moves slot i to about 2i: growth
// reads the old table and writes the new one in order, instead of jumping through memory. The rest of its time is the
// kernel handing out pages, so large tables ask for huge ones, which also spare most lookups a miss of the address cache.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#if defined(_MSC_VER)
#include <xmmintrin.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace outcome_rl {

inline void prefetch([[maybe_unused]] const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address);
#elif defined(_MSC_VER)
    _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0);
#endif
}

// Asks for huge pages in the part of `memory` that they can cover. Memory from calloc is not touched yet where the system
// maps it afresh, as it does above some ten megabytes. Advice only: whether it is taken changes nothing but speed.
inline void advise_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr uintptr_t kHugePage = uintptr_t{1} << 21;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes) / kHugePage * kHugePage;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

// A bijection of 64-bit words in which every input bit changes every output bit with probability near 1/2
// (the finaliser of SplitMix64: Stafford's variant 13 of MurmurHash3's).
inline uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

template <class Slot>
class OpenTable {
    static_assert(std::is_trivial<Slot>::value, "slots are zeroed and copied as bytes");

  public:
    // `log2_slots` from 1 to 63. Without memory the table has no slots and `allocated()` is false.
    explicit OpenTable(int log2_slots) : shift_(64 - log2_slots) {
        // One cache line more than needed, so that the slots can start on a line and none straddles two.
        if (slot_count() > (SIZE_MAX - kCacheLine) / sizeof(Slot)) return;
        const size_t bytes = slot_count() * sizeof(Slot) + kCacheLine;
        memory_ = std::calloc(1, bytes);
        if (memory_ == nullptr) return;
        advise_huge_pages(memory_, bytes);
        const auto address = reinterpret_cast<uintptr_t>(memory_);
        slots_ = reinterpret_cast<Slot*>((address + kCacheLine - 1) / kCacheLine * kCacheLine);
    }
    ~OpenTable() { std::free(memory_); }
    OpenTable(const OpenTable&) = delete;
    OpenTable& operator=(const OpenTable&) = delete;

    void swap(OpenTable& other) {
        std::swap(shift_, other.shift_);
        std::swap(size_, other.size_);
        std::swap(memory_, other.memory_);
        std::swap(slots_, other.slots_);
    }

    bool allocated() const { return slots_ != nullptr; }
    int64_t size() const { return size_; }
    uint64_t slot_count() const { return uint64_t{1} << (64 - shift_); }
    Slot* begin() { return slots_; }
    Slot* end() { return slots_ + slot_count(); }
    const Slot* begin() const { return slots_; }
    const Slot* end() const { return slots_ + slot_count(); }

    void prefetch_home(uint64_t hash) const { prefetch(slots_ + (hash >> shift_)); }

    // The slot that holds this key, or the empty slot where it belongs. The load limit guarantees an empty one.
    const Slot& find(const Slot& key, uint64_t hash) const {
        const uint64_t last = slot_count() - 1;
        uint64_t place = hash >> shift_;
        while (!slots_[place].empty() && !slots_[place].same_key(key)) place = (place + 1) & last;
        return slots_[place];
    }
    Slot& find(const Slot& key, uint64_t hash) { return const_cast<Slot&>(std::as_const(*this).find(key, hash)); }

    // Call after filling an empty slot that `find` gave, with `reserve` before.
    void count_insertion() { ++size_; }

    // Makes room for `additional` insertions; false: out of memory, and the table is as it was.
    bool reserve(int64_t additional) {
        const uint64_t needed = static_cast<uint64_t>(size_) + static_cast<uint64_t>(additional);
        int log2_slots = 64 - shift_;
        // needed <= 0.6 * slots, in an order of operations that cannot overflow.
        while (needed > (uint64_t{1} << log2_slots) / 5 * 3) {
            if (++log2_slots > 62) return false;
        }
        if (log2_slots == 64 - shift_) return true;
        OpenTable grown(log2_slots);
        if (!grown.allocated()) return false;
        for (const Slot& slot : *this) {
            if (!slot.empty()) grown.find(slot, slot.hash()) = slot;
        }
        grown.size_ = size_;
        swap(grown);
        return true;
    }

  private:
    static constexpr size_t kCacheLine = 64;

    int shift_;
    int64_t size_ = 0;
    void* memory_ = nullptr;
    Slot* slots_ = nullptr;
};

}  // namespace outcome_rl
