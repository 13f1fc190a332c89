// An open-addressing hash table of counts: power-of-two size, linear probing, grown before it is 0.6 full.
//
// A slot's index is the high bits of its hash. Doubling the table therefore moves slot i to about 2i: growth
// reads the old table and writes the new one in order, instead of jumping through memory. The rest of its time is the
// kernel handing out pages, so large tables ask for huge ones, which also spare most lookups a miss of the address cache.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
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

// 32 bytes, two to a cache line. A pair that was seen has a positive count, so `count == 0`, as in zeroed memory, marks
// an empty slot, and every pair of int64 stays a legal key.
struct CountSlot {
    int64_t question;
    int64_t outcome;
    int64_t count;
    int64_t pending;  // the part of `count` that was not sent to other ranks

    bool empty() const { return count == 0; }
    bool same_key(const CountSlot& key) const { return question == key.question && outcome == key.outcome; }
    // For one question this is a bijection of the outcome: its outcomes never share a hash.
    uint64_t hash() const {
        constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15u;
        return mix64(mix64(static_cast<uint64_t>(question) + kGoldenRatio) + static_cast<uint64_t>(outcome));
    }
};
static_assert(sizeof(CountSlot) == 32);

class OpenTable {
  public:
    // `log2_slots` from 1 to 63. Without memory the table has no slots and `allocated()` is false.
    explicit OpenTable(int log2_slots) : shift_(64 - log2_slots) {
        // One cache line more than needed, so that the slots can start on a line and none straddles two.
        if (slot_count() > (SIZE_MAX - kCacheLine) / sizeof(CountSlot)) return;
        const size_t bytes = slot_count() * sizeof(CountSlot) + kCacheLine;
        memory_ = std::calloc(1, bytes);
        if (memory_ == nullptr) return;
        advise_huge_pages(memory_, bytes);
        const auto address = reinterpret_cast<uintptr_t>(memory_);
        slots_ = reinterpret_cast<CountSlot*>((address + kCacheLine - 1) / kCacheLine * kCacheLine);
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
    CountSlot* begin() { return slots_; }
    CountSlot* end() { return slots_ + slot_count(); }
    const CountSlot* begin() const { return slots_; }
    const CountSlot* end() const { return slots_ + slot_count(); }

    void prefetch_home(uint64_t hash) const { prefetch(slots_ + (hash >> shift_)); }

    // The slot that holds this key, or the empty slot where it belongs. The load limit guarantees an empty one.
    const CountSlot& find(const CountSlot& key, uint64_t hash) const {
        const uint64_t last = slot_count() - 1;
        uint64_t place = hash >> shift_;
        while (!slots_[place].empty() && !slots_[place].same_key(key)) place = (place + 1) & last;
        return slots_[place];
    }
    CountSlot& find(const CountSlot& key, uint64_t hash) {
        return const_cast<CountSlot&>(std::as_const(*this).find(key, hash));
    }

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
        for (const CountSlot& slot : *this) {
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
    CountSlot* slots_ = nullptr;
};

}  // namespace outcome_rl
