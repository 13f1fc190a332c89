// Passes over rows of logits: what the policy loss needs of a row, and its gradient written over the row.
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

namespace outcome_rl {

struct Bfloat16 {
    uint16_t bits;
};

template <class Logit>
struct LogitRows {
    const Logit* logits;  // (rows, vocabulary), contiguous
    const int64_t* labels;
    int64_t rows;
    int64_t vocabulary;
    float inverse_temperature;
};

struct RowStatistics {
    float maximum;
    float log_sum;
    double logp;
    double entropy;
};

template <class Logit>
RowStatistics row_statistics(const LogitRows<Logit>& input, int64_t row);

// Writes `logp_grad * d logp + entropy_grad * d entropy` to row `row` of `gradients`, which may be the logits themselves.
template <class Logit, class Gradient>
void write_row_gradient(
    const LogitRows<Logit>& input,
    int64_t row,
    const RowStatistics& statistics,
    float logp_grad,
    float entropy_grad,
    Gradient* gradients);

// Log-probabilities and entropies of all rows.
template <class Logit>
void logprob_rows(const LogitRows<Logit>& input, float* logp, float* entropy, int threads);

// The gradients of all rows. `entropy_grad` null: zero.
template <class Logit, class Gradient>
void logprob_rows_backward(
    const LogitRows<Logit>& input, const float* logp_grad, const float* entropy_grad, Gradient* gradients, int threads);

}  // namespace outcome_rl
