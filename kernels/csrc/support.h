// Products of hidden states with the kept rows of a head, and the sums that are their gradients.
//
// An entry is a kept token of a position. Entries with a negative token id or index are skipped.
//
//     logits[e] = hidden[rows[e]] . weight[token_ids[e]]                       0 where skipped
//     sums[s]   = sum over offsets[s] <= e < offsets[s + 1] of coefficients[e] * table[index[e]]
//
// Every sum has one order, whatever the number of threads.

#pragma once

#include <cstdint>

#include "bfloat16.h"

namespace outcome_rl {

template <class Value>
void kept_logits(
    const Value* hidden,
    const Value* weight,
    const int64_t* rows,
    const int64_t* token_ids,
    int64_t entries,
    int64_t width,
    float* logits,
    int threads);

// `sums`: (segments, width), all of it written.
template <class Value>
void segment_sums(
    const Value* table,
    const int64_t* index,
    const float* coefficients,
    const int64_t* offsets,
    int64_t segments,
    int64_t width,
    Value* sums,
    int threads);

}  // namespace outcome_rl
