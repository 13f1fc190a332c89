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

// For one question this is a bijection of the outcome: its outcomes never share a hash. The question's slot has that of
// "no answer", and so lies next to it.
inline uint64_t hash_of(const CountSlot& key) {
    constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15u;
    const auto outcome = static_cast<uint64_t>(key.is_question() ? kNoAnswer : key.outcome);
    return mix64(mix64(static_cast<uint64_t>(key.question) + kGoldenRatio) + outcome);
}

}  // namespace

CountTable::CountTable(int log2_slots) : shift_(64 - log2_slots) {
    // One cache line more than needed, so that the slots can start on a line and none straddles two.
    if (slot_count() > (SIZE_MAX - kCacheLine) / sizeof(CountSlot)) return;
    const size_t bytes = slot_count() * sizeof(CountSlot) + kCacheLine;
    memory_ = std::calloc(1, bytes);
    if (memory_ == nullptr) return;
    advise_huge_pages(memory_, static_cast<int64_t>(bytes));
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    slots_ = reinterpret_cast<CountSlot*>((address + kCacheLine - 1) / kCacheLine * kCacheLine);
}

CountTable::~CountTable() { std::free(memory_); }

// The slot that holds this key, or the empty slot where it belongs. The load limit guarantees an empty one.
inline CountSlot& CountTable::find(const CountSlot& key, uint64_t hash) const {
    const uint64_t last = slot_count() - 1;
    uint64_t place = hash >> shift_;
    while (slots_[place].count != 0 && !slots_[place].has_key_of(key)) place = (place + 1) & last;
    return slots_[place];
}

// Makes room for `additional` new pairs or questions; false: out of memory, and the table is as it was.
bool CountTable::reserve(int64_t additional) {
    const uint64_t needed = static_cast<uint64_t>(used_) + static_cast<uint64_t>(additional);
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

// Calls visit(i, key, slot) for every outcome in order, where `slot` is the one that `find` gives, and after those of
// question q visit_question(q, key, slot). A block of slots is fetched before its first one is needed: the misses of a
// table larger than the caches then overlap.
template <class Visit, class VisitQuestion>
void CountTable::for_each_key(const Batch& batch, Visit visit, VisitQuestion visit_question) const {
    constexpr int64_t kBlock = 64;
    CountSlot block[kBlock];
    uint64_t hashes[kBlock];
    const int64_t samples = batch.samples(), keys_of_question = samples + 1;
    int64_t question = 0, sample = 0;  // of the next key; sample number `samples` stands for the question itself
    const int64_t keys = batch.question_count * keys_of_question;
    for (int64_t start = 0; start < keys; start += kBlock) {
        const int64_t rows = std::min(kBlock, keys - start);
        int64_t q = question, i = sample;
        for (int64_t row = 0; row < rows; ++row) {
            const bool own = i == samples;
            block[row] = {batch.questions[q], own ? 0 : batch.outcomes[q * samples + i], 0, own ? kQuestion : 0};
            hashes[row] = hash_of(block[row]);
            prefetch(slots_ + (hashes[row] >> shift_));
            if (own) ++q;
            i = own ? 0 : i + 1;
        }
        for (int64_t row = 0; row < rows; ++row) {
            CountSlot& slot = find(block[row], hashes[row]);
            if (sample == samples) {
                visit_question(question++, block[row], slot);
                sample = 0;
            } else {
                visit(question * samples + sample++, block[row], slot);
            }
        }
    }
}

int64_t CountTable::lookup(const Batch& batch, const Past& past) const {
    int64_t missing = 0;
    int64_t *visits = past.history, *successes = visits + batch.question_count;
    int64_t* answers = successes + batch.question_count;
    for_each_key(
        batch,
        [&](int64_t i, const CountSlot&, const CountSlot& slot) {
            past.counts[i] = slot.count;
            missing += slot.count == 0;
        },
        [&](int64_t q, const CountSlot&, const CountSlot& slot) {
            const bool seen = slot.count != 0;
            visits[q] = slot.count;
            successes[q] = seen ? slot.successes - kQuestion : 0;
            answers[q] = seen ? slot.outcome : 0;
            missing += !seen;
        });
    return missing;
}

bool CountTable::observe(const Batch& batch, const Past* past) {
    int64_t additional = batch.n;  // of a snapshot, whose pairs are sorted: these, and each question once
    if (past != nullptr) {
        additional = lookup(batch, *past);
    } else {
        for (int64_t q = 0; q < batch.question_count; ++q) additional += q == 0 || batch.questions[q] != batch.questions[q - 1];
    }
    if (!reserve(additional)) return false;
    if (batch.n == 0) return true;  // a question without samples is not seen
    CountSlot of_question{};  // of the question whose outcomes are visited: what its slot gains
    for_each_key(
        batch,
        [&](int64_t i, const CountSlot& key, CountSlot& slot) {
            const int64_t count = batch.count_of(i), successes = batch.successes_of(i);
            if (slot.count == 0) {
                slot = key;
                ++used_;
                ++pairs_;
                of_question.outcome += key.outcome != kNoAnswer;
            }
            slot.count += count;
            slot.successes += successes;
            total_ += count;
            of_question.count += count;
            of_question.successes += successes;
        },
        [&](int64_t, const CountSlot& key, CountSlot& slot) {
            if (slot.count == 0) {
                slot = key;
                ++used_;
            }
            slot.outcome += of_question.outcome;
            slot.count += of_question.count;
            slot.successes += of_question.successes;
            of_question = {};
        });
    return true;
}

void CountTable::entries(int64_t* questions, int64_t* outcomes, int64_t* counts, int64_t* successes) const {
    for (const CountSlot& slot : *this) {
        if (slot.count == 0 || slot.is_question()) continue;
        *questions++ = slot.question;
        *outcomes++ = slot.outcome;
        *counts++ = slot.count;
        *successes++ = slot.successes;
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
// of memory, and the table is as it was. `correct` null: no sample is.
OUTCOME_RL_EXPORT bool count_table_observe(
    CountTable* table,
    const int64_t* questions,
    const int64_t* outcomes,
    const uint8_t* correct,
    int64_t* before,
    int64_t* history,
    int64_t n,
    int64_t question_count) noexcept {
    const Past past{before, history};
    return table->observe({questions, outcomes, correct, nullptr, nullptr, n, question_count}, &past);
}

OUTCOME_RL_EXPORT bool count_table_add(
    CountTable* table,
    const int64_t* questions,
    const int64_t* outcomes,
    const int64_t* counts,
    const int64_t* successes,
    int64_t n) noexcept {
    return table->observe({questions, outcomes, nullptr, counts, successes, n, n}, nullptr);
}

OUTCOME_RL_EXPORT void count_table_lookup(
    const CountTable* table,
    const int64_t* questions,
    const int64_t* outcomes,
    int64_t* counts,
    int64_t* history,
    int64_t n,
    int64_t question_count) noexcept {
    table->lookup({questions, outcomes, nullptr, nullptr, nullptr, n, question_count}, {counts, history});
}

OUTCOME_RL_EXPORT void count_table_entries(
    const CountTable* table, int64_t* questions, int64_t* outcomes, int64_t* counts, int64_t* successes) noexcept {
    table->entries(questions, outcomes, counts, successes);
}

}  // namespace outcome_rl
