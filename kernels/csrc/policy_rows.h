// The policy loss of rows of logits and its gradient, in one visit to each row: the C++ twin of
// outcome_rl_kernels/policy_rows_triton.py. The formulas are those of outcome_rl_kernels/reference/policy_loss.py.

#pragma once

#include <cstdint>

#include "logit_rows.h"

namespace outcome_rl {

enum class AnswerMaskMode : int32_t { kPolicy, kBonus, kAll, kNone };
enum class KlPenalty : int32_t { kK1, kK2, kK3 };

// Mirrored by `_Settings` in policy_rows_native.py. Bounds that are off are infinite.
struct LossSettings {
    double beta;
    double epsilon_low;
    double epsilon_high;
    double delta;
    double entropy_coef;
    double log_ratio_clamp;
    double kl_clamp;
    AnswerMaskMode answer_mask_mode;
    KlPenalty kl_penalty;
};

// (rows,) each; null: the term is absent. Mirrored by `_Tokens` in policy_rows_native.py.
struct PolicyTokens {
    const float* advantages;
    const float* weights;
    const float* bonuses;
    const uint8_t* answer_mask;
    const float* ref_logps;
    const float* old_logps;
    const float* rollout_weights;
    const float* sequence_log_ratios;
    const uint8_t* active;  // rows that are not get zeros and are not read
};

// (rows,) each.
struct RowTerms {
    float* logp;
    float* entropy;
    float* loss;  // times the weight
    float* kl;
    float* ratio;
    float* clipped;
    float* is_policy;
};

// Writes the terms of every row and, unless `gradients` is null, the derivative of the sum of their losses by the logits
// to `gradients` (rows, vocabulary), which may be the logits themselves.
template <class Logit, class Gradient>
void policy_rows(
    const LogitRows<Logit>& input,
    const PolicyTokens& tokens,
    const LossSettings& settings,
    const RowTerms& terms,
    Gradient* gradients,
    int threads);

}  // namespace outcome_rl
