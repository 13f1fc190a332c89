#include "count_table.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

#include "exports.h"
#include "huge_pages.h"

namespace outcome_rl {

namespace {

constexpr size_t kCacheLine = 64;

inline void prefetch([[maybe_unused]] const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address);
#endif
}

// A bijection of 64-bit words in which every input bit changes every output bit with probability near 1/2
// (the finaliser of SplitMix64: Stafford's variant 13 of MurmurHash3's).
inline uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// For one question this is a bijection of the outcome: its outcomes never share a hash.
inline uint64_t hash_of(const CountSlot& key) {
    constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15u;
    return mix64(mix64(static_cast<uint64_t>(key.question) + kGoldenRatio) + static_cast<uint64_t>(key.outcome));
}

}  // namespace

CountTable::CountTable(int log2_slots) : shift_(64 - log2_slots) {
    // One cache line more than needed, so that the slots can start on a line and none straddles two.
    if (slot_count() > (SIZE_MAX - kCacheLine) / sizeof(CountSlot)) return;
    const size_t bytes = slot_count() * sizeof(CountSlot) + kCacheLine;
    memory_ = std::calloc(1, bytes);
    if (memory_ == nullptr) return;
    advise_huge_pages(memory_, bytes);
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    slots_ = reinterpret_cast<CountSlot*>((address + kCacheLine - 1) / kCacheLine * kCacheLine);
}

CountTable::~CountTable() { std::free(memory_); }

// The slot that holds this key, or the empty slot where it belongs. The load limit guarantees an empty one.
inline CountSlot& CountTable::find(const CountSlot& key, uint64_t hash) const {
    const uint64_t last = slot_count() - 1;
    uint64_t place = hash >> shift_;
    while (slots_[place].count != 0 && (slots_[place].question != key.question || slots_[place].outcome != key.outcome)) {
        place = (place + 1) & last;
    }
    return slots_[place];
}

// Makes room for `additional` new pairs; false: out of memory, and the table is as it was.
bool CountTable::reserve(int64_t additional) {
    const uint64_t needed = static_cast<uint64_t>(size_) + static_cast<uint64_t>(additional);
    int log2_slots = 64 - shift_;
    // needed <= 0.6 * slots, in an order of operations that cannot overflow.
    while (needed > (uint64_t{1} << log2_slots) / 5 * 3) {
        if (++log2_slots > 62) return false;
    }
    if (log2_slots == 64 - shift_) return true;
    CountTable grown(log2_slots);
    if (!grown.allocated()) return false;
    for (const CountSlot& slot : *this) {
        if (slot.count != 0) grown.find(slot, hash_of(slot)) = slot;
    }
    std::swap(shift_, grown.shift_);
    std::swap(memory_, grown.memory_);
    std::swap(slots_, grown.slots_);
    return true;
}

// Calls visit(i, key, slot) for every row in order, where `slot` is the one that `find` gives. A block of slots is fetched
// before its first one is needed: the misses of a table larger than the caches then overlap.
template <class Visit>
void CountTable::for_each_key(const Keys& keys, Visit visit) const {
    constexpr int64_t kBlock = 64;
    CountSlot block[kBlock];
    uint64_t hashes[kBlock];
    const int64_t* question = keys.questions;
    const int64_t outcomes_per_question = keys.n / std::max<int64_t>(keys.question_count, 1);
    int64_t left_of_question = outcomes_per_question;  // counted down, where a division a row would cost more
    for (int64_t start = 0; start < keys.n; start += kBlock) {
        const int64_t rows = std::min(kBlock, keys.n - start);
        for (int64_t i = 0; i < rows; ++i) {
            if (left_of_question == 0) {
                ++question;
                left_of_question = outcomes_per_question;
            }
            --left_of_question;
            block[i] = {*question, keys.outcomes[start + i], 0, 0};
            hashes[i] = hash_of(block[i]);
            prefetch(slots_ + (hashes[i] >> shift_));
        }
        for (int64_t i = 0; i < rows; ++i) visit(start + i, block[i], find(block[i], hashes[i]));
    }
}

bool CountTable::observe(const Keys& keys, int64_t* before) {
    const int64_t missing = lookup(keys, before);
    if (missing > 0 && !reserve(missing)) return false;
    add_reserved(keys, [](int64_t) { return int64_t{1}; });
    return true;
}

bool CountTable::add(const Keys& keys, const int64_t* counts) {
    if (!reserve(keys.n)) return false;
    add_reserved(keys, [counts](int64_t i) { return counts[i]; });
    return true;
}

int64_t CountTable::lookup(const Keys& keys, int64_t* counts) const {
    int64_t missing = 0;
    for_each_key(keys, [&](int64_t i, const CountSlot&, const CountSlot& slot) {
        counts[i] = slot.count;
        missing += counts[i] == 0;
    });
    return missing;
}

// Adds without growing. `count_of(i)` is what row i adds.
template <class CountOf>
void CountTable::add_reserved(const Keys& keys, CountOf count_of) {
    for_each_key(keys, [&](int64_t i, const CountSlot& key, CountSlot& slot) {
        if (slot.count == 0) {
            slot = key;
            ++size_;
        }
        const int64_t count = count_of(i);
        slot.count += count;
        total_ += count;
    });
}

void CountTable::entries(int64_t* questions, int64_t* outcomes, int64_t* counts) const {
    for (const CountSlot& slot : *this) {
        if (slot.count == 0) continue;
        *questions++ = slot.question;
        *outcomes++ = slot.outcome;
        *counts++ = slot.count;
    }
}

// Null: out of memory.
OUTCOME_RL_EXPORT CountTable* count_table_create(int32_t log2_slots) noexcept {
    auto* table = new (std::nothrow) CountTable(log2_slots);
    if (table != nullptr && !table->allocated()) {
        delete table;
        return nullptr;
    }
    return table;
}

OUTCOME_RL_EXPORT void count_table_destroy(CountTable* table) noexcept { delete table; }

OUTCOME_RL_EXPORT int64_t count_table_size(const CountTable* table) noexcept { return table->size(); }

OUTCOME_RL_EXPORT int64_t count_table_total(const CountTable* table) noexcept { return table->total(); }

OUTCOME_RL_EXPORT int64_t count_table_slot_count(const CountTable* table) noexcept {
    return static_cast<int64_t>(table->slot_count());
}

// Below, n outcomes belong to question_count questions, equally many to each. False, of this and of `count_table_add`: out
// of memory, and the table is as it was.
OUTCOME_RL_EXPORT bool count_table_observe(
    CountTable* table,
    const int64_t* questions,
    const int64_t* outcomes,
    int64_t* before,
    int64_t n,
    int64_t question_count) noexcept {
    return table->observe({questions, outcomes, n, question_count}, before);
}

OUTCOME_RL_EXPORT bool count_table_add(
    CountTable* table,
    const int64_t* questions,
    const int64_t* outcomes,
    const int64_t* counts,
    int64_t n,
    int64_t question_count) noexcept {
    return table->add({questions, outcomes, n, question_count}, counts);
}

OUTCOME_RL_EXPORT void count_table_lookup(
    const CountTable* table,
    const int64_t* questions,
    const int64_t* outcomes,
    int64_t* counts,
    int64_t n,
    int64_t question_count) noexcept {
    table->lookup({questions, outcomes, n, question_count}, counts);
}

OUTCOME_RL_EXPORT void count_table_entries(
    const CountTable* table, int64_t* questions, int64_t* outcomes, int64_t* counts) noexcept {
    table->entries(questions, outcomes, counts);
}

}  // namespace outcome_rl
