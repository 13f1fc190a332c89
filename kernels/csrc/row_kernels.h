// Passes over rows of logits: their statistics, and their gradient from those. No loss formula is here.
//
//     s_v = logit_v / temperature,   maximum = max_v s_v,   log_sum = log sum_v exp(s_v - maximum)
//     log p_v = s_v - maximum - log_sum
//     logp = log p_label,            entropy = -sum_v p_v log p_v
//     d logp / d logit_v    = (1[v = label] - p_v) / temperature
//     d entropy / d logit_v = -p_v (log p_v + entropy) / temperature
//
// The log-sum-exp stays in its two parts: as one float32 near 20 it would be off by 1e-6, and every p_v with it.
// Sums are in float32 lanes and combined in double.

#pragma once

#include <cstdint>

#include "bfloat16.h"

namespace outcome_rl {

template <class Logit>
struct LogitRows {
    const Logit* logits;  // (rows, vocabulary), contiguous
    const int64_t* labels;
    const uint8_t* active;  // null: all rows are; other rows are not read and give zeros
    int64_t rows;
    int64_t vocabulary;
    float inverse_temperature;
};

// The columns of (4, rows) statistics.
struct RowStatistics {
    double* logp;
    double* entropy;
    double* maximum;
    double* log_sum;
};

template <class Logit>
void row_statistics(const LogitRows<Logit>& input, const RowStatistics& statistics, int threads);

// Writes `logp_grad * d logp + entropy_grad * d entropy` of every row to `gradients`, which may be the logits themselves.
// `entropy_grad` null: zero.
template <class Logit, class Gradient>
void row_gradients(
    const LogitRows<Logit>& input,
    const RowStatistics& statistics,
    const double* logp_grad,
    const double* entropy_grad,
    Gradient* gradients,
    int threads);

}  // namespace outcome_rl
