// Passes over rows of logits: their statistics, and their gradient from those. No loss formula is here.
//
//     d_v = (logit_v - maximum) / temperature,   maximum = max_v logit_v,   log_sum = log sum_v exp(d_v)
//     log p_v = d_v - log_sum
//     logp = log p_label,            entropy = -sum_v p_v log p_v
//     d logp / d logit_v    = (1[v = label] - p_v) / temperature
//     d entropy / d logit_v = -p_v (log p_v + entropy) / temperature
//
// The log-sum-exp stays in its two parts: as one float32 near 20 it would be off by 1e-6, and every p_v with it.
// Sums are in float32 lanes and combined in double. The label is apart from them: beside its 1, where it is the maximum,
// the other terms of a peaked row would be rounded off, and with them log p = -log1p(their sum).

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "bfloat16.h"
#include "exponential.h"
#include "exports.h"
#include "logit_rows.h"
#include "over_rows.h"

// FOR_EACH_MACHINE, from CMakeLists.txt: the compiler makes one copy of the hot loops for each kind of machine and the
// loader picks one, so that a wheel built anywhere is fast everywhere without -march=native.

namespace outcome_rl {

namespace {

// Values summed in float32 before they are added in double: 128 in each lane of the narrowest machine, which has four.
constexpr int64_t kBlock = 512;

template <class Logit>
FOR_EACH_MACHINE float block_maximum(const Logit* row, int64_t n) {
    float maximum = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : maximum)
    for (int64_t v = 0; v < n; ++v) {
        const float value = to_float(row[v]);
        maximum = value > maximum ? value : maximum;
    }
    return maximum;
}

struct Sums {
    float exp;           // sum of exp(x)
    float exp_times_x;   // sum of exp(x) x
};

template <class Logit>
FOR_EACH_MACHINE Sums block_sums(const Logit* row, int64_t n, float inverse_temperature, float maximum) {
    float exp_sum = 0, weighted_sum = 0;
#pragma omp simd reduction(+ : exp_sum, weighted_sum)
    for (int64_t v = 0; v < n; ++v) {
        const float x = (to_float(row[v]) - maximum) * inverse_temperature;
        const float e = x < -87.0f ? 0.0f : exp_nonpositive(x);
        exp_sum += e;
        weighted_sum += e * (x < -87.0f ? -87.0f : x);  // 0 * -inf is 0 here
    }
    return {exp_sum, weighted_sum};
}

// -p_v (constant + slope * log p_v)
FOR_EACH_MACHINE void block_gradients(
    const float* row,
    int64_t n,
    float inverse_temperature,
    float maximum,
    float log_sum,
    float constant,
    float slope,
    float* to) {
#pragma omp simd
    for (int64_t v = 0; v < n; ++v) {
        const float log_p = (row[v] - maximum) * inverse_temperature - log_sum;
        const float bounded = log_p < -87.0f ? -87.0f : log_p;
        to[v] = normal(-exp_nonpositive(log_p) * (constant + slope * bounded));
    }
}

// A block of logits as float32, that of index `without` replaced by -infinity; a copy if it has bfloat16
// or changes.
template <class Logit>
const float* block_of(const Logit* row, int64_t n, int64_t without, float* room) {
    const bool changes = without >= 0 && without < n;
    if constexpr (std::is_same_v<Logit, float>) {
        if (!changes) return row;
    }
    widen(row, n, room);
    if (changes) room[without] = -std::numeric_limits<float>::infinity();
    return room;
}

// Of a row: a column of (4, rows) statistics.
struct Statistics {
    double logp = 0, entropy = 0, maximum = 0, log_sum = 0;
};

template <class Logit>
Statistics statistics_of_row(const Logit* row, int64_t vocabulary, int64_t label, float inverse_temperature) {
    // A maximum starts at the lowest number, since -inf - -inf is NaN.
    const float label_logit = to_float(row[label]);
    float largest = std::max(-std::numeric_limits<float>::infinity(), label_logit);
    float maximum = std::max(std::numeric_limits<float>::lowest(), label_logit);
    double others = 0, weighted_sum = 0;
    float room[kBlock];
    for (int64_t start = 0; start < vocabulary; start += kBlock) {
        const int64_t n = std::min(kBlock, vocabulary - start);
        const float* block = block_of(row + start, n, label - start, room);
        largest = std::max(largest, block_maximum(block, n));
        if (largest > maximum) {
            const double drop = (static_cast<double>(maximum) - largest) * inverse_temperature;
            weighted_sum = (weighted_sum + others * drop) * std::exp(drop);
            others *= std::exp(drop);
            maximum = largest;
        }
        const Sums sums = block_sums(block, n, inverse_temperature, maximum);
        others += sums.exp;
        weighted_sum += sums.exp_times_x;
    }
    const double d = (static_cast<double>(label_logit) - maximum) * inverse_temperature, of_label = std::exp(d);
    weighted_sum += of_label == 0 ? 0 : of_label * d;  // not 0 * -inf
    const double sum = others + of_label;
    // The values of a row without a possible token are not numbers; its log-sum, which shards need, is -infinity.
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double log_sum =
        std::isinf(largest) ? (largest < 0 ? largest : nan) : d == 0 ? std::log1p(others) : std::log(sum);
    return {d - log_sum, std::isinf(largest) ? nan : log_sum - weighted_sum / sum, maximum, log_sum};
}

// Writes g * d logp + e * d entropy, by logits times the inverse temperature.
template <class Logit, class Gradient>
void gradient_of_row(
    const Logit* row,
    int64_t vocabulary,
    int64_t label,
    float inverse_temperature,
    const Statistics& of,
    double g,
    double e,
    Gradient* to) {
    const float maximum = static_cast<float>(of.maximum), log_sum = static_cast<float>(of.log_sum);
    const float constant = static_cast<float>(g + e * of.entropy), slope = static_cast<float>(e);
    float room[kBlock], grads[kBlock];
    for (int64_t start = 0; start < vocabulary; start += kBlock) {
        const int64_t n = std::min(kBlock, vocabulary - start);
        const float* block = block_of(row + start, n, -1, room);
        block_gradients(block, n, inverse_temperature, maximum, log_sum, constant, slope, grads);
        narrow(grads, n, to + start);
    }
    // 1 - p cancels where the row is peaked, so it is taken from the logarithm.
    const double at_label = -g * std::expm1(of.logp) - e * std::exp(of.logp) * (std::max(of.logp, -87.0) + of.entropy);
    store(to + label, static_cast<float>(at_label));
}

}  // namespace

// Writes (4, rows) statistics of (rows, vocabulary) logits. `active` null: all rows are; other rows are not read and give
// zeros, here and below.
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
    by_kind(kind, logits, nullptr, [=](auto* in, auto*) {
        over_rows(rows, vocabulary, threads, [=](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
                Statistics found;
                if (is_active(active, r)) {
                    found = statistics_of_row(in + r * vocabulary, vocabulary, labels[r], inverse_temperature);
                }
                statistics[r] = found.logp;
                statistics[rows + r] = found.entropy;
                statistics[2 * rows + r] = found.maximum;
                statistics[3 * rows + r] = found.log_sum;
            }
        });
    });
}

// Writes `logp_grad * d logp + entropy_grad * d entropy` of every row to `gradients`, which may be the logits themselves.
// `entropy_grad` null: zero.
OUTCOME_RL_EXPORT void row_gradients(
    int32_t kind,
    const void* logits,
    const int64_t* labels,
    const uint8_t* active,
    int64_t rows,
    int64_t vocabulary,
    float inverse_temperature,
    const double* statistics,
    const double* logp_grad,
    const double* entropy_grad,
    void* gradients,
    int32_t threads) noexcept {
    by_kind(kind, logits, gradients, [=](auto* in, auto* out) {
        over_rows(rows, vocabulary, threads, [=](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
                auto* to = out + r * vocabulary;
                if (!is_active(active, r)) {
                    std::fill_n(to, vocabulary, std::remove_reference_t<decltype(*to)>{});
                    continue;
                }
                const Statistics of{
                    statistics[r], statistics[rows + r], statistics[2 * rows + r], statistics[3 * rows + r]};
                const double g = logp_grad[r] * inverse_temperature;
                const double e = entropy_grad == nullptr ? 0 : entropy_grad[r] * inverse_temperature;
                gradient_of_row(in + r * vocabulary, vocabulary, labels[r], inverse_temperature, of, g, e, to);
            }
        });
    });
}

}  // namespace outcome_rl
