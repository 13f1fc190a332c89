#include "logit_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "over_rows.h"

// FOR_EACH_MACHINE, from CMakeLists.txt: the compiler makes one copy of the hot loops for each kind of machine and the
// loader picks one, so that a wheel built anywhere is fast everywhere without -march=native.

namespace outcome_rl {

namespace {

inline float to_float(float value) { return value; }

inline float to_float(Bfloat16 value) {
    const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
    float result;
    std::memcpy(&result, &bits, sizeof(result));
    return result;
}

inline void store(float* place, float value) { *place = value; }

inline void store(Bfloat16* place, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
    place->bits = static_cast<uint16_t>(value != value ? 0x7fc0 : rounded);
}

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
    int32_t bits;
    std::memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits - 0x4b400000 + 127) << 23;  // 2^n
    float scale;
    std::memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

// Values summed in float32 before they are added in double: 128 in each lane of the narrowest machine, which has four.
constexpr int64_t kBlock = 512;

template <class Logit>
FOR_EACH_MACHINE float row_maximum(const Logit* row, int64_t n) {
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

}  // namespace

template <class Logit>
RowStatistics row_statistics(const LogitRows<Logit>& in, int64_t r) {
    const Logit* row = in.logits + r * in.vocabulary;
    const float maximum = row_maximum(row, in.vocabulary) * in.inverse_temperature;
    double exp_sum = 0, weighted_sum = 0;
    for (int64_t start = 0; start < in.vocabulary; start += kBlock) {
        const int64_t n = std::min(kBlock, in.vocabulary - start);
        const Sums sums = block_sums(row + start, n, in.inverse_temperature, maximum);
        exp_sum += sums.exp;
        weighted_sum += sums.exp_times_x;
    }
    const double log_sum = std::log(exp_sum);
    const double x = to_float(row[in.labels[r]]) * in.inverse_temperature - maximum;
    return {
        maximum,
        static_cast<float>(log_sum),
        x - log_sum,
        log_sum - weighted_sum / exp_sum,
    };
}

template <class Logit, class Gradient>
void write_row_gradient(
    const LogitRows<Logit>& in, int64_t r, const RowStatistics& row, float logp_grad, float entropy_grad, Gradient* to) {
    to += r * in.vocabulary;
    const float g = logp_grad * in.inverse_temperature;
    const float e = entropy_grad * in.inverse_temperature;
    // 1 - p cancels where the row is peaked, so it is taken from the logarithm.
    const double at_label =
        -g * std::expm1(row.logp) - e * std::exp(row.logp) * (std::max(row.logp, -87.0) + row.entropy);
    write_gradients(
        in.logits + r * in.vocabulary,
        in.vocabulary,
        in.inverse_temperature,
        row.maximum,
        row.log_sum,
        static_cast<float>(g + e * row.entropy),
        e,
        to);
    store(to + in.labels[r], static_cast<float>(at_label));
}

template <class Logit>
void logprob_rows(const LogitRows<Logit>& in, float* logp, float* entropy, int threads) {
    over_rows(in.rows, in.vocabulary, threads, [=](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            const RowStatistics row = row_statistics(in, r);
            logp[r] = static_cast<float>(row.logp);
            entropy[r] = static_cast<float>(row.entropy);
        }
    });
}

template <class Logit, class Gradient>
void logprob_rows_backward(
    const LogitRows<Logit>& in, const float* logp_grad, const float* entropy_grad, Gradient* to, int threads) {
    over_rows(in.rows, in.vocabulary, threads, [=](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            const float e = entropy_grad == nullptr ? 0.0f : entropy_grad[r];
            write_row_gradient(in, r, row_statistics(in, r), logp_grad[r], e, to);
        }
    });
}

template RowStatistics row_statistics(const LogitRows<float>&, int64_t);
template RowStatistics row_statistics(const LogitRows<Bfloat16>&, int64_t);
template void logprob_rows(const LogitRows<float>&, float*, float*, int);
template void logprob_rows(const LogitRows<Bfloat16>&, float*, float*, int);

#define ROW_GRADIENTS(Logit, Gradient)                                                                        \
    template void write_row_gradient(                                                                         \
        const LogitRows<Logit>&, int64_t, const RowStatistics&, float, float, Gradient*);                     \
    template void logprob_rows_backward(const LogitRows<Logit>&, const float*, const float*, Gradient*, int)
ROW_GRADIENTS(float, float);
ROW_GRADIENTS(float, Bfloat16);
ROW_GRADIENTS(Bfloat16, Bfloat16);

}  // namespace outcome_rl
