// Exact counts of (question, outcome) pairs: the C++ twin of `DictTable` in outcome_rl_kernels/counts/reference.py.

#pragma once

#include <cstdint>

#include "open_table.h"

namespace outcome_rl {

// `n` pairs: each question has `outcomes_per_question` outcomes, one after another.
struct Keys {
    const int64_t* questions;
    const int64_t* outcomes;
    int64_t n;
    int64_t outcomes_per_question = 1;
};

class CountTable {
  public:
    explicit CountTable(int log2_slots) : counts_(log2_slots) {}

    bool allocated() const { return counts_.allocated(); }
    int64_t size() const { return counts_.size(); }
    int64_t total() const { return total_; }  // the sum of all counts
    int64_t pending_size() const { return pending_size_; }
    int64_t slot_count() const { return static_cast<int64_t>(counts_.slot_count()); }

    // Where these return false there was no memory to grow, and the table is as it was.
    bool observe(const Keys& keys, int64_t* before);
    bool add(const Keys& keys, const int64_t* counts, bool pending);

    // Returns how many of the pairs are not in the table.
    int64_t lookup(const Keys& keys, int64_t* counts) const;

    // Write size() or pending_size() entries, in the order of the slots.
    void entries(int64_t* questions, int64_t* outcomes, int64_t* counts) const;
    void pending(int64_t* questions, int64_t* outcomes, int64_t* counts) const;

    void clear_pending();

  private:
    // Adds without growing. `count_of(i)` is what row i adds.
    template <class CountOf>
    void add_reserved(const Keys& keys, bool pending, CountOf count_of);

    OpenTable counts_;
    int64_t total_ = 0;
    int64_t pending_size_ = 0;
};

}  // namespace outcome_rl
