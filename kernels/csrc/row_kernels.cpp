#include "row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "over_rows.h"

// FOR_EACH_MACHINE, from CMakeLists.txt: the compiler makes one copy of the hot loops for each kind of machine and the
// loader picks one, so that a wheel built anywhere is fast everywhere without -march=native.

namespace outcome_rl {

namespace {

// exp for x <= 0 to 2 ulp of float32, written so that compilers vectorise it; below -87 it is about 1e-38. NaN stays.
// Cody-Waite reduction by ln 2, then the degree 5 minimax polynomial of Cephes' expf.
inline float exp_nonpositive(float x) {
    x = x < -87.0f ? -87.0f : x;
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const float shifted = x * 1.44269504088896341f + magic;
    const float n = shifted - magic;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;  // unsigned: the bits of a NaN may leave the range of a shift
    std::memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits - 0x4b400000 + 127) << 23;  // 2^n
    float scale;
    std::memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

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
        const float x = to_float(row[v]) * inverse_temperature - maximum;
        const float e = exp_nonpositive(x);
        exp_sum += e;
        weighted_sum += e * (x < -87.0f ? -87.0f : x);  // 0 * -inf is 0 here
    }
    return {exp_sum, weighted_sum};
}

template <class Logit, class Gradient>
FOR_EACH_MACHINE void write_gradients(
    const Logit* row,
    int64_t n,
    float inverse_temperature,
    float maximum,
    float log_sum,
    float constant,
    float slope,
    Gradient* to) {
    // -p_v (constant + slope * log p_v)
#pragma omp simd
    for (int64_t v = 0; v < n; ++v) {
        const float log_p = (to_float(row[v]) * inverse_temperature - maximum) - log_sum;
        const float bounded = log_p < -87.0f ? -87.0f : log_p;
        store(to + v, -exp_nonpositive(log_p) * (constant + slope * bounded));
    }
}

template <class Logit>
void statistics_of_row(const LogitRows<Logit>& in, int64_t r, const RowStatistics& to) {
    const Logit* row = in.logits + r * in.vocabulary;
    // A maximum starts at the lowest number, since -inf - -inf is NaN.
    float maximum = std::numeric_limits<float>::lowest(), largest = -std::numeric_limits<float>::infinity();
    double exp_sum = 0, weighted_sum = 0;
    for (int64_t start = 0; start < in.vocabulary; start += kBlock) {
        const int64_t n = std::min(kBlock, in.vocabulary - start);
        largest = std::max(largest, block_maximum(row + start, n) * in.inverse_temperature);
        if (largest > maximum) {
            const double drop = static_cast<double>(maximum) - largest;
            weighted_sum = (weighted_sum + exp_sum * drop) * std::exp(drop);
            exp_sum *= std::exp(drop);
            maximum = largest;
        }
        const Sums sums = block_sums(row + start, n, in.inverse_temperature, maximum);
        exp_sum += sums.exp;
        weighted_sum += sums.exp_times_x;
    }
    // A row without a possible token is not a number.
    const double log_sum = std::log(std::isinf(largest) ? std::numeric_limits<double>::quiet_NaN() : exp_sum);
    to.maximum[r] = maximum;
    to.log_sum[r] = log_sum;
    to.logp[r] = to_float(row[in.labels[r]]) * in.inverse_temperature - maximum - log_sum;
    to.entropy[r] = log_sum - weighted_sum / exp_sum;
}

bool is_active(const uint8_t* active, int64_t r) { return active == nullptr || active[r] != 0; }

}  // namespace

template <class Logit>
void row_statistics(const LogitRows<Logit>& in, const RowStatistics& to, int threads) {
    over_rows(in.rows, in.vocabulary, threads, [=](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            if (is_active(in.active, r)) {
                statistics_of_row(in, r, to);
            } else {
                to.logp[r] = to.entropy[r] = to.maximum[r] = to.log_sum[r] = 0;
            }
        }
    });
}

template <class Logit, class Gradient>
void row_gradients(
    const LogitRows<Logit>& in,
    const RowStatistics& of,
    const double* logp_grad,
    const double* entropy_grad,
    Gradient* gradients,
    int threads) {
    over_rows(in.rows, in.vocabulary, threads, [=](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            Gradient* to = gradients + r * in.vocabulary;
            if (!is_active(in.active, r)) {
                std::fill_n(to, in.vocabulary, Gradient{});
                continue;
            }
            const double g = logp_grad[r] * in.inverse_temperature;
            const double e = entropy_grad == nullptr ? 0 : entropy_grad[r] * in.inverse_temperature;
            const double logp = of.logp[r], entropy = of.entropy[r];
            write_gradients(
                in.logits + r * in.vocabulary,
                in.vocabulary,
                in.inverse_temperature,
                static_cast<float>(of.maximum[r]),
                static_cast<float>(of.log_sum[r]),
                static_cast<float>(g + e * entropy),
                static_cast<float>(e),
                to);
            // 1 - p cancels where the row is peaked, so it is taken from the logarithm.
            const double at_label = -g * std::expm1(logp) - e * std::exp(logp) * (std::max(logp, -87.0) + entropy);
            store(to + in.labels[r], static_cast<float>(at_label));
        }
    });
}

template void row_statistics(const LogitRows<float>&, const RowStatistics&, int);
template void row_statistics(const LogitRows<Bfloat16>&, const RowStatistics&, int);

#define ROW_GRADIENTS(Logit, Gradient)      \
    template void row_gradients(            \
        const LogitRows<Logit>&, const RowStatistics&, const double*, const double*, Gradient*, int)
ROW_GRADIENTS(float, float);
ROW_GRADIENTS(float, Bfloat16);
ROW_GRADIENTS(Bfloat16, Bfloat16);

}  // namespace outcome_rl
