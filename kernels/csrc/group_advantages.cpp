#include "group_advantages.h"

#include <algorithm>
#include <cmath>

namespace outcome_rl {

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

}  // namespace

template <class T>
void group_advantages(const Groups<T>& input, const GroupSettings& settings, T* advantages, T* bonuses) {
    const int64_t n = input.samples;
    for (int64_t start = 0; start < input.groups * n; start += n) {
        reward_advantages(input.rewards + start, n, settings, advantages + start);
        const bool solved =
            all_correct(input.correct == nullptr ? nullptr : input.correct + start, input.rewards + start, n);
        const int64_t* before = input.before == nullptr ? nullptr : input.before + start;
        const Signals<T> signals(input.outcomes + start, before, n, settings);
        std::fill_n(bonuses + start, n, T(0));
        for (int64_t term = 0; term < settings.term_count; ++term) {
            if (solved && settings.terms[term].zero_when_all_correct != 0) continue;
            signals.add(settings.terms[term], bonuses + start);
        }
    }
}

template void group_advantages(const Groups<float>&, const GroupSettings&, float*, float*);
template void group_advantages(const Groups<double>&, const GroupSettings&, double*, double*);

}  // namespace outcome_rl
