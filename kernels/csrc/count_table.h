// Exact counts of (question, outcome) pairs: the C++ twin of `DictTable` in outcome_rl_kernels/counts/reference.py.
//
// An open-addressing hash table: power-of-two size, linear probing, grown before it is 0.6 full. A slot's index is the
// high bits of its hash. Doubling the table therefore moves slot i to about 2i: growth reads the old table and writes the
// new one in order, instead of jumping through memory. The rest of its time is the kernel handing out pages, so large
// tables ask for huge ones, which also spare most lookups a miss of the address cache.

#pragma once

#include <cstdint>

namespace outcome_rl {

// 32 bytes, two to a cache line. A pair that was seen has a positive count, so `count == 0`, as in zeroed memory, marks
// an empty slot, and every pair of int64 stays a legal key.
struct CountSlot {
    int64_t question;
    int64_t outcome;
    int64_t count;
    int64_t unused;  // no slot straddles two cache lines
};
static_assert(sizeof(CountSlot) == 32);

// `n` outcomes, equally many of each question, one after another.
struct Keys {
    const int64_t* questions;
    const int64_t* outcomes;
    int64_t n;
    int64_t question_count;
};

class CountTable {
  public:
    // `log2_slots` from 1 to 63. Without memory the table has no slots and `allocated()` is false.
    explicit CountTable(int log2_slots);
    ~CountTable();
    CountTable(const CountTable&) = delete;
    CountTable& operator=(const CountTable&) = delete;

    bool allocated() const { return slots_ != nullptr; }
    uint64_t slot_count() const { return uint64_t{1} << (64 - shift_); }
    int64_t size() const { return size_; }
    int64_t total() const { return total_; }  // the sum of all counts

    // Where these return false there was no memory to grow, and the table is as it was.
    bool observe(const Keys& keys, int64_t* before);
    bool add(const Keys& keys, const int64_t* counts);

    // Returns how many of the pairs are not in the table.
    int64_t lookup(const Keys& keys, int64_t* counts) const;

    // Writes all size() pairs and their counts, in the order of the slots.
    void entries(int64_t* questions, int64_t* outcomes, int64_t* counts) const;

  private:
    CountSlot* begin() const { return slots_; }
    CountSlot* end() const { return slots_ + slot_count(); }
    CountSlot& find(const CountSlot& key, uint64_t hash) const;
    bool reserve(int64_t additional);
    template <class Visit>
    void for_each_key(const Keys& keys, Visit visit) const;
    template <class CountOf>
    void add_reserved(const Keys& keys, CountOf count_of);

    int shift_;
    void* memory_ = nullptr;
    CountSlot* slots_ = nullptr;
    int64_t size_ = 0;
    int64_t total_ = 0;
};

}  // namespace outcome_rl
