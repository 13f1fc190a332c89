// Exact counts of (question, outcome) pairs, and the history of each question: the C++ twin of `DictTable` in outcome_rl_kernels/counts/reference.py.
//
// An open-addressing hash table: power-of-two size, linear probing, grown before it is 0.6 full. A slot's index is the
// high bits of its hash. Doubling the table therefore moves slot i to about 2i: growth reads the old table and writes the
// new one in order, instead of jumping through memory. The rest of its time is the kernel handing out pages, so large
// tables ask for huge ones, which also spare most lookups a miss of the address cache.

#pragma once

#include <cstdint>

namespace outcome_rl {

// 32 bytes, two to a cache line. A pair that was seen has a positive count, so `count == 0`, as in zeroed memory, marks
// an empty slot, and every pair of int64 stays a legal key. A question that was seen has a slot of its own, marked by the
// sign of `successes`.
struct CountSlot {
    int64_t question;
    int64_t outcome;    // in a question's slot: different answers so far
    int64_t count;      // in a question's slot: samples so far
    int64_t successes;  // correct samples so far; in a question's slot plus kQuestion

    bool is_question() const { return successes < 0; }
    bool has_key_of(const CountSlot& key) const {
        return question == key.question && is_question() == key.is_question() &&
               (is_question() || outcome == key.outcome);
    }
};
static_assert(sizeof(CountSlot) == 32);

constexpr int64_t kQuestion = INT64_MIN;
constexpr int64_t kNoAnswer = 0;  // the outcome key of a sample without an answer, which is no different answer

// A batch: `n` outcomes, equally many of each question, one after another.
struct Batch {
    const int64_t* questions;
    const int64_t* outcomes;
    const uint8_t* correct;   // null: none is
    const int64_t* counts;    // how often each sample is to be counted, and how often it was correct; null: once
    const int64_t* successes;
    int64_t n;
    int64_t question_count;

    int64_t samples() const { return question_count == 0 ? 0 : n / question_count; }
    int64_t count_of(int64_t i) const { return counts == nullptr ? 1 : counts[i]; }
    int64_t successes_of(int64_t i) const {
        return successes != nullptr ? successes[i] : correct != nullptr && correct[i] != 0;
    }
};

// What the table knew before a batch: `counts` of its n outcomes; `history` is (3, question_count) samples, correct
// samples and different answers of its questions.
struct Past {
    int64_t* counts;
    int64_t* history;
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
    int64_t size() const { return pairs_; }
    int64_t total() const { return total_; }  // the sum of all counts

    // False: there was no memory to grow, and the table is as it was. `past` null: not wanted.
    bool observe(const Batch& batch, const Past* past);

    // Returns how many of the pairs and questions are not in the table, repeats included.
    int64_t lookup(const Batch& batch, const Past& past) const;

    // Writes all size() pairs, their counts and their correct samples, in the order of the slots.
    void entries(int64_t* questions, int64_t* outcomes, int64_t* counts, int64_t* successes) const;

  private:
    CountSlot* begin() const { return slots_; }
    CountSlot* end() const { return slots_ + slot_count(); }
    CountSlot& find(const CountSlot& key, uint64_t hash) const;
    bool reserve(int64_t additional);
    template <class Visit, class VisitQuestion>
    void for_each_key(const Batch& batch, Visit visit, VisitQuestion visit_question) const;

    int shift_;
    void* memory_ = nullptr;
    CountSlot* slots_ = nullptr;
    int64_t used_ = 0;   // slots of pairs and of questions
    int64_t pairs_ = 0;
    int64_t total_ = 0;
};

}  // namespace outcome_rl
