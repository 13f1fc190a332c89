#include "count_table.h"

#include <algorithm>

namespace outcome_rl {

namespace {

// Calls visit(i, key, hash) for every row in order. A block of slots is fetched before its first one is needed: the
// misses of a table larger than the caches then overlap.
template <class Visit>
void for_each_key(
    const OpenTable<CountSlot>& table, const int64_t* questions, const int64_t* outcomes, int64_t n, Visit visit) {
    constexpr int64_t kBlock = 64;
    uint64_t hashes[kBlock];
    for (int64_t start = 0; start < n; start += kBlock) {
        const int64_t rows = std::min(kBlock, n - start);
        for (int64_t i = 0; i < rows; ++i) {
            hashes[i] = CountSlot{questions[start + i], outcomes[start + i], 0, 0}.hash();
            table.prefetch_home(hashes[i]);
        }
        for (int64_t i = 0; i < rows; ++i) {
            visit(start + i, CountSlot{questions[start + i], outcomes[start + i], 0, 0}, hashes[i]);
        }
    }
}

}  // namespace

CountTable::CountTable(int log2_slots)
    // Questions are fewer than outcomes; their table grows by itself if they are not that many fewer.
    : counts_(log2_slots), questions_(std::max(log2_slots - 4, 3)) {}

bool CountTable::observe(const int64_t* questions, const int64_t* outcomes, int64_t n, int64_t* before) {
    const int64_t missing = lookup(questions, outcomes, n, before);
    if (!counts_.reserve(missing) || !questions_.reserve(missing)) return false;
    add_reserved(questions, outcomes, n, /*pending=*/true, [](int64_t) { return int64_t{1}; });
    return true;
}

bool CountTable::add(
    const int64_t* questions, const int64_t* outcomes, const int64_t* counts, int64_t n, bool pending) {
    if (!counts_.reserve(n) || !questions_.reserve(n)) return false;
    add_reserved(questions, outcomes, n, pending, [counts](int64_t i) { return counts[i]; });
    return true;
}

int64_t CountTable::lookup(const int64_t* questions, const int64_t* outcomes, int64_t n, int64_t* counts) const {
    int64_t missing = 0;
    for_each_key(counts_, questions, outcomes, n, [&](int64_t i, const CountSlot& key, uint64_t hash) {
        counts[i] = counts_.find(key, hash).count;
        missing += counts[i] == 0;
    });
    return missing;
}

void CountTable::distinct(const int64_t* questions, int64_t n, int64_t* outcomes) const {
    for (int64_t i = 0; i < n; ++i) {
        const QuestionSlot key{questions[i], 0};
        outcomes[i] = questions_.find(key, key.hash()).distinct_outcomes;
    }
}

void CountTable::entries(int64_t* questions, int64_t* outcomes, int64_t* counts) const {
    for (const CountSlot& slot : counts_) {
        if (slot.empty()) continue;
        *questions++ = slot.question;
        *outcomes++ = slot.outcome;
        *counts++ = slot.count;
    }
}

void CountTable::pending(int64_t* questions, int64_t* outcomes, int64_t* counts) const {
    if (pending_size_ == 0) return;
    for (const CountSlot& slot : counts_) {
        if (slot.pending == 0) continue;
        *questions++ = slot.question;
        *outcomes++ = slot.outcome;
        *counts++ = slot.pending;
    }
}

void CountTable::clear_pending() {
    if (pending_size_ == 0) return;
    for (CountSlot& slot : counts_) slot.pending = 0;
    pending_size_ = 0;
}

void CountTable::clear() {
    counts_.clear();
    questions_.clear();
    pending_size_ = 0;
}

template <class CountOf>
void CountTable::add_reserved(
    const int64_t* questions, const int64_t* outcomes, int64_t n, bool pending, CountOf count_of) {
    for_each_key(counts_, questions, outcomes, n, [&](int64_t i, const CountSlot& key, uint64_t hash) {
        CountSlot& slot = counts_.find(key, hash);
        if (slot.empty()) {
            slot = key;
            counts_.count_insertion();
            const QuestionSlot question{key.question, 0};
            QuestionSlot& tally = questions_.find(question, question.hash());
            if (tally.empty()) {
                tally.question = key.question;
                questions_.count_insertion();
            }
            ++tally.distinct_outcomes;
        }
        const int64_t count = count_of(i);
        slot.count += count;
        if (pending) {
            pending_size_ += slot.pending == 0;
            slot.pending += count;
        }
    });
}

}  // namespace outcome_rl
