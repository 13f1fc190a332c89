// Passes over rows of the logits of two models, student and teacher: a divergence of each row, and its gradient.
//
//     log p_v = (student_v - anchor) / temperature - rest,     log q_v likewise     E = expm1(-|log p_v - log q_v|)
//
//     kind 0  reverse KL    sum_v p log(p / q) - p + q                d / d log-odds_v = p (log(p / q) - D)
//     kind 1  forward KL    sum_v q log(q / p) - q + p                                   p - q
//     kind 2  Jensen-Shannon, with m = (1 - b) p + b q
//                           sum_v (1 - b) p log(p / m) + b q log(q / m)                  (1 - b) p (log(p / m) - X)
//                           X = sum_v p log(p / m) - p + m
//
// The terms -p + q sum to 0; with them an error of a log-sum-exp changes a sum by its square only. p - q and m / max(p, q)
// are taken from E, which does not cancel where the models agree.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "exponential.h"
#include "exports.h"
#include "logit_rows.h"
#include "over_rows.h"

namespace outcome_rl {

namespace {

constexpr int64_t kBlock = 512;
constexpr float kSlack = 0.04f;  // so that masses whose logarithms are rounded to bfloat16 sum to 1 at most

constexpr float kLog[] = {1.402636319e-01f, -1.538854688e-01f, 1.399580687e-01f, -1.641595960e-01f,
                          2.001116872e-01f, -2.500782013e-01f, 3.333319724e-01f, -4.999993742e-01f};

// log(1 + x) for -1 < x <= 0, to 3e-8 of it: f = (1 + x) / 2^n - 1, and a polynomial is (log(1 + f) - f) / f^2.
inline float log1p_nonpositive(float x) {
    const float u = 1.0f + x;
    int32_t bits;
    std::memcpy(&bits, &u, sizeof(bits));
    const int32_t n = (bits - 0x3f2aaaab) >> 23;  // u / 2^n lies between 2 / 3 and 4 / 3
    bits = 0x3f800000 - n * (1 << 23);
    float scale;
    std::memcpy(&scale, &bits, sizeof(scale));
    const float f = x * scale + (scale - 1.0f);
    float y = kLog[0];
    for (int i = 1; i < 8; ++i) y = y * f + kLog[i];
    return f * f * y + f + 0.693147180f * static_cast<float>(n);
}

struct Scale {
    float anchor, rest, inverse_temperature;

    float log_p(float logit) const { return (logit - anchor) * inverse_temperature - rest; }
};

// log of the smaller of p and q over the larger, at least -87; that where both models forbid a token.
inline float low_ratio(float log_p, float log_q) {
    const float x = -std::fabs(log_p - log_q);
    return x > -87.0f ? x : -87.0f;
}

// Of a token: its part of the divergence, and of X.
struct Terms {
    float value, inner;
};

template <int kKind>
inline Terms terms_of(float log_p, float log_q, float b) {
    const bool up = log_p > log_q;
    const float low = low_ratio(log_p, log_q), large = exp_nonpositive(up ? log_p : log_q);
    const Exponential ratio = exponential(low);
    const float e = ratio.less_one(), small = large * ratio.value(), excess = up ? -large * e : large * e;
    if constexpr (kKind == 0) {
        const float slope = log_p < -87.0f ? 0.0f : (up ? large : small) * (log_p - log_q);
        return {slope - excess, slope - excess};
    } else if constexpr (kKind == 1) {
        return {excess - (log_q < -87.0f ? 0.0f : (up ? small : large) * (log_p - log_q)), 0.0f};
    } else {
        const float share = up ? b : 1 - b, mixed = log1p_nonpositive(share * e);  // log(m / larger)
        const float of_p = up ? -large * mixed : small * (low - mixed);
        return {share * small * low - large * (1.0f + share * e) * mixed, of_p - b * excess};
    }
}

// Of a token: its gradient, from X; where a KL is infinite, that of tokens without probability is 0.
template <int kKind>
inline float gradient_of(float log_p, float log_q, float b, float inner) {
    const float p = probability(log_p), low = low_ratio(log_p, log_q), e = exponential(low).less_one();
    const bool up = log_p > log_q;
    if constexpr (kKind == 0) return p == 0 ? 0.0f : p * (log_p - log_q - inner);
    if constexpr (kKind == 1) return (up ? -e : e) * exp_nonpositive(up ? log_p : log_q);
    return p * ((up ? 0.0f : low) - log1p_nonpositive((up ? b : 1 - b) * e) - inner);
}

template <int kKind>
FOR_EACH_MACHINE void block_sums(
    const float* student, const float* teacher, int64_t n, Scale s, Scale t, float b, double* value, double* inner) {
    float values = 0, inners = 0;
#pragma omp simd reduction(+ : values, inners)
    for (int64_t v = 0; v < n; ++v) {
        const Terms of = terms_of<kKind>(s.log_p(student[v]), t.log_p(teacher[v]), b);
        values += of.value;
        inners += of.inner;
    }
    *value += values;
    *inner += inners;
}

template <int kKind>
FOR_EACH_MACHINE void block_gradients(
    const float* student, const float* teacher, int64_t n, Scale s, Scale t, float b, float factor, float inner,
    float* to) {
#pragma omp simd
    for (int64_t v = 0; v < n; ++v) {
        to[v] = normal(factor * gradient_of<kKind>(s.log_p(student[v]), t.log_p(teacher[v]), b, inner));
    }
}

// Writes log((p + q) / 2) - kSlack over the teacher's logits.
FOR_EACH_MACHINE void block_masses(const float* student, float* teacher, int64_t n, Scale s, Scale t) {
#pragma omp simd
    for (int64_t v = 0; v < n; ++v) {
        const float log_p = s.log_p(student[v]), log_q = t.log_p(teacher[v]);
        const float e = exponential(low_ratio(log_p, log_q)).less_one();
        teacher[v] = (log_p > log_q ? log_p : log_q) + log1p_nonpositive(0.5f * e) - kSlack;
    }
}

}  // namespace

// Writes (2, rows) divergences and X, or where `gradients` is given, `factor` (rows) times the gradients of rows, for which
// it reads them; with `masses` also log masses over the teacher's logits. `scales` (4, rows): anchor and rest of the
// student, then of the teacher.
OUTCOME_RL_EXPORT void divergence_rows(
    int32_t kind, const void* student, void* teacher, const uint8_t* active, int64_t rows, int64_t vocabulary,
    float inverse_temperature, float teacher_inverse_temperature, const float* scales, int32_t divergence, float b,
    double* sums, const double* factor, void* gradients, int32_t masses, int32_t threads) noexcept {
    by_kind(kind, student, gradients, [=](auto* in, auto* out) {
        using Logit = std::remove_const_t<std::remove_pointer_t<decltype(in)>>;
        using Gradient = std::remove_pointer_t<decltype(out)>;
        const auto pass = [=](auto of_kind, int64_t begin, int64_t end) {
            constexpr int kKind = decltype(of_kind)::value;
            for (int64_t r = begin; r < end; ++r) {
                const Logit* row = in + r * vocabulary;
                Logit* other = static_cast<Logit*>(teacher) + r * vocabulary;
                const Scale s{scales[r], scales[rows + r], inverse_temperature};
                const Scale t{scales[2 * rows + r], scales[3 * rows + r], teacher_inverse_temperature};
                const float nan = 0 * (s.anchor + s.rest + t.anchor + t.rest);  // 0 where both rows are of numbers
                const bool is_counted = is_active(active, r);
                if (out == nullptr) sums[r] = sums[rows + r] = is_counted ? nan : 0;
                if (out != nullptr && !is_counted) std::fill_n(out + r * vocabulary, vocabulary, Gradient{});
                float students[kBlock], teachers[kBlock], grads[kBlock];
                for (int64_t start = 0; is_counted && start < vocabulary; start += kBlock) {
                    const int64_t n = std::min(kBlock, vocabulary - start);
                    widen(row + start, n, students);
                    widen(other + start, n, teachers);
                    if (out == nullptr) {
                        block_sums<kKind>(students, teachers, n, s, t, b, sums + r, sums + rows + r);
                        continue;
                    }
                    block_gradients<kKind>(students, teachers, n, s, t, b, factor[r] + nan, sums[rows + r], grads);
                    narrow(grads, n, out + r * vocabulary + start);
                    if (masses == 0) continue;
                    block_masses(students, teachers, n, s, t);
                    narrow(teachers, n, other + start);
                }
            }
        };
        over_rows(rows, vocabulary, threads, [=](int64_t begin, int64_t end) {
            if (divergence == 0) return pass(std::integral_constant<int, 0>{}, begin, end);
            if (divergence == 1) return pass(std::integral_constant<int, 1>{}, begin, end);
            pass(std::integral_constant<int, 2>{}, begin, end);
        });
    });
}

}  // namespace outcome_rl
