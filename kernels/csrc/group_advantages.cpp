// Group advantages on the CPU: the C++ twin of outcome_rl_kernels/advantages/reference.py, which has the formulas.
//
// Sums are taken in double. The rest of the bonuses is computed in the type of the rewards, in the order of the
// reference and without fused multiply-adds, so that they are the same bits (`ucb_mean`: up to the rounding of one sum);
// advantages are computed in double and rounded once.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "count_table.h"
#include "exports.h"

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

namespace {

constexpr int64_t kNoAnswer = 0;

template <class T>
void reward_advantages(const T* rewards, int64_t n, const GroupSettings& settings, T* advantages) {
    if (std::all_of(rewards, rewards + n, [&](T reward) { return reward == rewards[0]; })) {
        std::fill_n(advantages, n, T(0));  // exactly: the mean may differ from equal rewards in the last bit
        return;
    }
    double mean = 0;
    for (int64_t i = 0; i < n; ++i) mean += rewards[i];
    mean /= static_cast<double>(n);
    double divisor = 1;
    if (settings.standardise != 0) {
        double squares = 0;
        for (int64_t i = 0; i < n; ++i) squares += (rewards[i] - mean) * (rewards[i] - mean);
        divisor = std::sqrt(squares / static_cast<double>(n - settings.ddof)) + settings.eps;  // n > 1: not all equal
    }
    for (int64_t i = 0; i < n; ++i) advantages[i] = static_cast<T>((rewards[i] - mean) / divisor);
}

// One group.
template <class T>
class Signals {
  public:
    Signals(const int64_t* outcomes, const int64_t* before, int64_t n, const GroupSettings& settings)
        : outcomes_(outcomes), before_(before), n_(n), settings_(settings) {}

    // Adds coef * signal to each sample's bonus.
    void add(const BonusTerm& term, T* bonuses) const {
        const T coef = static_cast<T>(term.coef), baseline = static_cast<T>(settings_.baseline);
        switch (term.method) {
            case Bonus::kNone:
                return;
            case Bonus::kUcb:
                return add_each(bonuses, [&](int64_t i) { return coef * historical(i); });
            case Bonus::kUcbCon:
                return add_each(bonuses, [&](int64_t i) { return coef * (historical(i) - baseline); });
            case Bonus::kUcbMean: {
                if (n_ == 1) return;
                double sum = 0;
                for (int64_t i = 0; i < n_; ++i) sum += historical(i);
                return add_each(bonuses, [&](int64_t i) {
                    const T own = historical(i);
                    return coef * (own - (static_cast<T>(sum) - own) / static_cast<T>(n_ - 1));
                });
            }
            case Bonus::kBatch:
                return add_each(bonuses, [&](int64_t i) {
                    return coef * (static_cast<T>(1 - multiplicity(i)) / static_cast<T>(n_));
                });
            case Bonus::kBatchPositive:
                return add_each(bonuses, [&](int64_t i) {
                    return coef * static_cast<T>(multiplicity(i) == 1 && earns_bonus(i));
                });
        }
    }

  private:
    template <class Signal>
    void add_each(T* bonuses, Signal signal) const {
        for (int64_t i = 0; i < n_; ++i) bonuses[i] += signal(i);
    }

    bool earns_bonus(int64_t i) const { return settings_.no_answer_counts != 0 || outcomes_[i] != kNoAnswer; }
    T historical(int64_t i) const {
        if (!earns_bonus(i)) return T(0);
        const int64_t seen = std::max<int64_t>(before_[i], 1);
        if (settings_.exponent == 0.5) return T(1) / std::sqrt(static_cast<T>(seen));
        return static_cast<T>(std::pow(static_cast<double>(seen), -settings_.exponent));
    }
    int64_t multiplicity(int64_t i) const { return std::count(outcomes_, outcomes_ + n_, outcomes_[i]); }

    const int64_t* outcomes_;
    const int64_t* before_;
    int64_t n_;
    const GroupSettings& settings_;
};

template <class T>
bool all_correct(const uint8_t* correct, const T* rewards, int64_t n) {
    if (correct != nullptr) return std::all_of(correct, correct + n, [](uint8_t one) { return one != 0; });
    return std::all_of(rewards, rewards + n, [](T reward) { return reward > 0; });
}

// Writes the advantages and bonuses of a group; `before` may be null where no term needs counts.
template <class T>
void advantages_of_group(
    const T* rewards,
    const int64_t* outcomes,
    const uint8_t* correct,
    const int64_t* before,
    int64_t n,
    const GroupSettings& settings,
    T* advantages,
    T* bonuses) {
    reward_advantages(rewards, n, settings, advantages);
    const bool solved = all_correct(correct, rewards, n);
    const Signals<T> signals(outcomes, before, n, settings);
    std::fill_n(bonuses, n, T(0));
    for (int64_t term = 0; term < settings.term_count; ++term) {
        if (solved && settings.terms[term].zero_when_all_correct != 0) continue;
        signals.add(settings.terms[term], bonuses);
    }
}

}  // namespace

// Arrays are [groups, samples], `questions` [groups]. `float64` says whether rewards, advantages and bonuses are double or
// float. `correct` may be null: where the reward is positive. `table` may be null, `before` then too; `update` adds the
// groups to the table. False: out of memory; nothing is counted and nothing computed.
OUTCOME_RL_EXPORT bool group_advantages(
    CountTable* table,
    int32_t update,
    int32_t float64,
    const void* rewards,
    const int64_t* questions,
    const int64_t* outcomes,
    const uint8_t* correct,
    int64_t groups,
    int64_t samples,
    const GroupSettings* settings,
    void* advantages,
    void* bonuses,
    int64_t* before) noexcept {
    if (table != nullptr) {
        const Keys keys{questions, outcomes, groups * samples, samples};
        if (update == 0) {
            table->lookup(keys, before);
        } else if (!table->observe(keys, before)) {
            return false;
        }
    }
    const auto at = [](auto* array, int64_t start) { return array == nullptr ? nullptr : array + start; };
    const auto compute = [&](auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        const auto* from = static_cast<const T*>(rewards);
        for (int64_t start = 0; start < groups * samples; start += samples) {
            advantages_of_group(
                from + start,
                outcomes + start,
                at(correct, start),
                at(before, start),
                samples,
                *settings,
                to + start,
                static_cast<T*>(bonuses) + start);
        }
    };
    if (float64 != 0) {
        compute(static_cast<double*>(advantages));
    } else {
        compute(static_cast<float*>(advantages));
    }
    return true;
}

}  // namespace outcome_rl
