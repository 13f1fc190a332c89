#include "count_table.h"

#include <algorithm>

namespace outcome_rl {

namespace {

// Calls visit(i, key, hash) for every row in order. A block of slots is fetched before its first one is needed: the
// misses of a table larger than the caches then overlap.
template <class Visit>
void for_each_key(const OpenTable& table, const Keys& keys, Visit visit) {
    constexpr int64_t kBlock = 64;
    CountSlot block[kBlock];
    uint64_t hashes[kBlock];
    const int64_t* question = keys.questions;
    int64_t left_of_question = keys.outcomes_per_question;  // counted down, where a division a row would cost more
    for (int64_t start = 0; start < keys.n; start += kBlock) {
        const int64_t rows = std::min(kBlock, keys.n - start);
        for (int64_t i = 0; i < rows; ++i) {
            if (left_of_question == 0) {
                ++question;
                left_of_question = keys.outcomes_per_question;
            }
            --left_of_question;
            block[i] = {*question, keys.outcomes[start + i], 0, 0};
            hashes[i] = block[i].hash();
            table.prefetch_home(hashes[i]);
        }
        for (int64_t i = 0; i < rows; ++i) visit(start + i, block[i], hashes[i]);
    }
}

}  // namespace

bool CountTable::observe(const Keys& keys, int64_t* before) {
    const int64_t missing = lookup(keys, before);
    if (missing > 0 && !counts_.reserve(missing)) return false;
    add_reserved(keys, /*pending=*/true, [](int64_t) { return int64_t{1}; });
    return true;
}

bool CountTable::add(const Keys& keys, const int64_t* counts, bool pending) {
    if (!counts_.reserve(keys.n)) return false;
    add_reserved(keys, pending, [counts](int64_t i) { return counts[i]; });
    return true;
}

int64_t CountTable::lookup(const Keys& keys, int64_t* counts) const {
    int64_t missing = 0;
    for_each_key(counts_, keys, [&](int64_t i, const CountSlot& key, uint64_t hash) {
        counts[i] = counts_.find(key, hash).count;
        missing += counts[i] == 0;
    });
    return missing;
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

template <class CountOf>
void CountTable::add_reserved(const Keys& keys, bool pending, CountOf count_of) {
    for_each_key(counts_, keys, [&](int64_t i, const CountSlot& key, uint64_t hash) {
        CountSlot& slot = counts_.find(key, hash);
        if (slot.empty()) {
            slot = key;
            counts_.count_insertion();
        }
        const int64_t count = count_of(i);
        slot.count += count;
        total_ += count;
        if (pending) {
            pending_size_ += slot.pending == 0;
            slot.pending += count;
        }
    });
}

}  // namespace outcome_rl
