// The exported functions: plain C, called by ctypes, so no exception may leave them. Arrays are contiguous, aligned to
// their elements and checked by the caller. One thread at a time may use a table.
// A change of any signature or of its meaning raises kAbiVersion, together with ABI_VERSION in backends.py.

#include <cstdint>
#include <new>
#include <type_traits>

#include "count_table.h"
#include "group_advantages.h"
#include "row_kernels.h"
#include "support.h"

#if defined(_WIN32)
#define OUTCOME_RL_EXPORT extern "C" __declspec(dllexport)
#elif defined(__GNUC__)
#define OUTCOME_RL_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define OUTCOME_RL_EXPORT extern "C"
#endif

namespace {

using outcome_rl::Bfloat16;
using outcome_rl::LogitRows;

constexpr int32_t kAbiVersion = 7;

enum Status : int32_t { kOk = 0, kOutOfMemory = 1 };

Status status_of(bool grown) { return grown ? kOk : kOutOfMemory; }

// Calls pass(rows of the logits' type, gradients of theirs): the types are numbers only as far as here.
// kinds: 0 float32, 1 bfloat16, 2 float32 with bfloat16 gradients.
template <class Pass>
void over_logits(int32_t kind, const LogitRows<void>& in, void* gradients, Pass pass) {
    const auto typed = [&](auto* logits) {
        using Logit = std::remove_const_t<std::remove_pointer_t<decltype(logits)>>;
        return LogitRows<Logit>{logits, in.labels, in.active, in.rows, in.vocabulary, in.inverse_temperature};
    };
    const auto wide = typed(static_cast<const float*>(in.logits));
    const auto half = typed(static_cast<const Bfloat16*>(in.logits));
    if (kind == 0) pass(wide, static_cast<float*>(gradients));
    if (kind == 1) pass(half, static_cast<Bfloat16*>(gradients));
    if (kind == 2) pass(wide, static_cast<Bfloat16*>(gradients));
}

outcome_rl::RowStatistics columns_of(double* statistics, int64_t rows) {
    return {statistics, statistics + rows, statistics + 2 * rows, statistics + 3 * rows};
}

}  // namespace

using outcome_rl::CountTable;

OUTCOME_RL_EXPORT int32_t outcome_rl_abi_version() noexcept { return kAbiVersion; }

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

OUTCOME_RL_EXPORT int64_t count_table_pending_size(const CountTable* table) noexcept { return table->pending_size(); }

OUTCOME_RL_EXPORT int64_t count_table_slot_count(const CountTable* table) noexcept { return table->slot_count(); }

OUTCOME_RL_EXPORT int32_t count_table_observe(
    CountTable* table, const int64_t* questions, const int64_t* outcomes, int64_t n, int64_t* before) noexcept {
    return status_of(table->observe({questions, outcomes, n}, before));
}

OUTCOME_RL_EXPORT int32_t count_table_add(
    CountTable* table,
    const int64_t* questions,
    const int64_t* outcomes,
    const int64_t* counts,
    int64_t n,
    int32_t pending) noexcept {
    return status_of(table->add({questions, outcomes, n}, counts, pending != 0));
}

OUTCOME_RL_EXPORT void count_table_lookup(
    const CountTable* table, const int64_t* questions, const int64_t* outcomes, int64_t n, int64_t* counts) noexcept {
    table->lookup({questions, outcomes, n}, counts);
}

OUTCOME_RL_EXPORT void count_table_entries(
    const CountTable* table, int64_t* questions, int64_t* outcomes, int64_t* counts) noexcept {
    table->entries(questions, outcomes, counts);
}

OUTCOME_RL_EXPORT void count_table_pending(
    const CountTable* table, int64_t* questions, int64_t* outcomes, int64_t* counts) noexcept {
    table->pending(questions, outcomes, counts);
}

OUTCOME_RL_EXPORT void count_table_clear_pending(CountTable* table) noexcept { table->clear_pending(); }

// `float64` says whether rewards, advantages and bonuses are double or float; `table` may be null, `before` then too;
// `update` adds the groups to the table. Out of memory: nothing is counted and nothing computed.
OUTCOME_RL_EXPORT int32_t group_advantages(
    CountTable* table,
    int32_t update,
    int32_t float64,
    const void* rewards,
    const int64_t* questions,
    const int64_t* outcomes,
    const uint8_t* correct,
    int64_t groups,
    int64_t samples,
    const outcome_rl::GroupSettings* settings,
    void* advantages,
    void* bonuses,
    int64_t* before) noexcept {
    if (table != nullptr) {
        const outcome_rl::Keys keys{questions, outcomes, groups * samples, samples};
        if (update == 0) {
            table->lookup(keys, before);
        } else if (!table->observe(keys, before)) {
            return kOutOfMemory;
        }
    }
    const auto compute = [&](auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        const outcome_rl::Groups<T> input{static_cast<const T*>(rewards), outcomes, correct, before, groups, samples};
        outcome_rl::group_advantages(input, *settings, to, static_cast<T*>(bonuses));
    };
    if (float64 != 0) {
        compute(static_cast<double*>(advantages));
    } else {
        compute(static_cast<float*>(advantages));
    }
    return kOk;
}

// See row_kernels.h; `kind` as for over_logits. `statistics`: (4, rows).
OUTCOME_RL_EXPORT void row_statistics(
    int32_t kind,
    const void* logits,
    const int64_t* labels,
    const uint8_t* active,
    int64_t rows,
    int64_t vocabulary,
    float inverse_temperature,
    double* statistics,
    int32_t threads) noexcept {
    const auto columns = columns_of(statistics, rows);
    over_logits(kind, {logits, labels, active, rows, vocabulary, inverse_temperature}, nullptr, [&](auto& input, auto*) {
        outcome_rl::row_statistics(input, columns, threads);
    });
}

OUTCOME_RL_EXPORT void row_gradients(
    int32_t kind,
    const void* logits,
    const int64_t* labels,
    const uint8_t* active,
    int64_t rows,
    int64_t vocabulary,
    float inverse_temperature,
    double* statistics,
    const double* logp_grad,
    const double* entropy_grad,
    void* gradients,
    int32_t threads) noexcept {
    const auto columns = columns_of(statistics, rows);
    over_logits(kind, {logits, labels, active, rows, vocabulary, inverse_temperature}, gradients, [&](auto& input, auto* to) {
        outcome_rl::row_gradients(input, columns, logp_grad, entropy_grad, to, threads);
    });
}

// See support.h; `bfloat16` says whether hidden states and weight, or table and sums, are bfloat16 or float.
OUTCOME_RL_EXPORT void kept_logits(
    int32_t bfloat16,
    const void* hidden,
    const void* weight,
    const int64_t* rows,
    const int64_t* token_ids,
    int64_t entries,
    int64_t width,
    float* logits,
    int32_t threads) noexcept {
    const auto compute = [&](auto* typed) {
        using T = std::remove_pointer_t<decltype(typed)>;
        const auto* table = static_cast<const T*>(weight);
        outcome_rl::kept_logits(static_cast<const T*>(hidden), table, rows, token_ids, entries, width, logits, threads);
    };
    bfloat16 != 0 ? compute(static_cast<Bfloat16*>(nullptr)) : compute(static_cast<float*>(nullptr));
}

OUTCOME_RL_EXPORT void segment_sums(
    int32_t bfloat16,
    const void* table,
    const int64_t* index,
    const float* coefficients,
    const int64_t* offsets,
    int64_t segments,
    int64_t width,
    void* sums,
    int32_t threads) noexcept {
    const auto compute = [&](auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        const auto* from = static_cast<const T*>(table);
        outcome_rl::segment_sums(from, index, coefficients, offsets, segments, width, to, threads);
    };
    bfloat16 != 0 ? compute(static_cast<Bfloat16*>(sums)) : compute(static_cast<float*>(sums));
}
