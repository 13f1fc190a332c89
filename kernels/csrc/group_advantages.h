// Group advantages on the CPU: the C++ twin of outcome_rl_kernels/advantages/reference.py, which has the formulas.
//
// Sums are taken in double. The rest of the bonuses is computed in the type of the rewards, in the order of the
// reference and without fused multiply-adds, so that they are the same bits (`ucb_mean`: up to the rounding of one sum);
// advantages are computed in double and rounded once.

#pragma once

#include <cstdint>

namespace outcome_rl {

enum class Bonus : int32_t { kNone, kUcb, kUcbMean, kUcbCon, kBatch, kBatchPositive };  // as BONUS_METHODS

struct BonusTerm {
    double coef;
    Bonus method;
    int32_t zero_when_all_correct;
};

// Mirrored by `_Settings` in advantages/native.py.
struct GroupSettings {
    const BonusTerm* terms;
    int64_t term_count;
    double baseline;
    double exponent;  // of the counts
    double eps;
    int32_t ddof;
    int32_t standardise;       // divide by the standard deviation
    int32_t no_answer_counts;  // outcome 0 earns a bonus like any other
};

template <class T>
struct Groups {
    const T* rewards;         // [groups, samples]
    const int64_t* outcomes;  // [groups, samples]
    const uint8_t* correct;   // [groups, samples], or null: where the reward is positive
    const int64_t* before;    // [groups, samples] counts, or null where no term needs them
    int64_t groups;
    int64_t samples;
};

// Writes [groups, samples] advantages and bonuses.
template <class T>
void group_advantages(const Groups<T>& input, const GroupSettings& settings, T* advantages, T* bonuses);

}  // namespace outcome_rl
