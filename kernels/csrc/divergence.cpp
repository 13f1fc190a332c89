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

constexpr float kLog[] = {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                          -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};

// log(1 + x) for -1 < x <= 0: the polynomial of Cephes' logf.
inline float log1p_nonpositive(float x) {
    const float u = 1.0f + x;
    int32_t bits;
    std::memcpy(&bits, &u, sizeof(bits));
    const int32_t n = (bits - 0x3f3504f3) >> 23;  // u / 2^n lies between sqrt(1 / 2) and sqrt(2)
    bits -= n * (1 << 23);
    float reduced;
    std::memcpy(&reduced, &bits, sizeof(reduced));
    const float f = n == 0 ? x : reduced - 1.0f, z = f * f;
    float y = kLog[0];
    for (int i = 1; i < 9; ++i) y = y * f + kLog[i];
    return f + (y * f * z - 2.12194440e-4f * n - 0.5f * z) + 0.693359375f * n;
}

struct Scale {
    float anchor, rest, inverse_temperature;

    float log_p(float logit) const { return (logit - anchor) * inverse_temperature - rest; }
};

// Of a token: its part of the divergence, of X, and p times its slope; its gradient is `slope - p X`, times 1 - b.
struct Terms {
    float value, inner, slope, p, log_mass;  // log_mass: log((p + q) / 2) - kSlack
};

template <int kKind>
inline Terms terms_of(float log_p, float log_q, float b) {
    const bool up = log_p > log_q;
    const float high = up ? log_p : log_q, low = up ? log_q : log_p;
    const float gap = high == low ? 0.0f : high - low;  // 0 where both models forbid a token
    const Exponential ratio = exponential(-gap);
    const float e = ratio.less_one(), large = probability(high);
    const float small = gap > 87.0f ? 0.0f : normal(large * ratio.value());
    const float p = up ? large : small, q = up ? small : large;
    const float excess = up ? -large * e : large * e, delta = up ? gap : -gap;
    const float mass = high + log1p_nonpositive(0.5f * e) - kSlack;
    if constexpr (kKind == 0) {
        const float slope = p == 0 ? 0.0f : p * delta;
        return {slope - excess, slope - excess, slope, p, mass};
    } else if constexpr (kKind == 1) {
        return {excess - (q == 0 ? 0.0f : q * delta), 0.0f, excess, p, mass};
    } else {
        const float mixed = log1p_nonpositive((up ? b : 1 - b) * e);
        const float of_p = p == 0 ? 0.0f : p * (up ? -mixed : -gap - mixed);
        const float of_q = q == 0 ? 0.0f : q * (up ? -gap - mixed : -mixed);
        return {(1 - b) * of_p + b * of_q, of_p - b * excess, of_p, p, mass};
    }
}

template <int kKind, class Logit>
FOR_EACH_MACHINE void block_sums(
    const Logit* student, const Logit* teacher, int64_t n, Scale s, Scale t, float b, double* value, double* inner) {
    float values = 0, inners = 0;
#pragma omp simd reduction(+ : values, inners)
    for (int64_t v = 0; v < n; ++v) {
        const Terms of = terms_of<kKind>(s.log_p(to_float(student[v])), t.log_p(to_float(teacher[v])), b);
        values += of.value;
        inners += of.inner;
    }
    *value += values;
    *inner += inners;
}

// Writes the gradient, and to `masses`, unless it is null, the logarithms of masses; these may be the logits.
template <int kKind, class Logit, class Gradient>
FOR_EACH_MACHINE void write_gradients(
    const Logit* student, const Logit* teacher, int64_t n, Scale s, Scale t, float b, float factor, float inner,
    Gradient* to, Logit* masses) {
    float room[kBlock];  // AVX2 has no conditional stores of 16 bits
#pragma omp simd
    for (int64_t v = 0; v < n; ++v) {
        const Terms of = terms_of<kKind>(s.log_p(to_float(student[v])), t.log_p(to_float(teacher[v])), b);
        store(to + v, normal(factor * (of.slope - (of.p == 0 ? 0.0f : of.p * inner))));
        if (masses != nullptr) room[v] = of.log_mass;
    }
    for (int64_t v = 0; masses != nullptr && v < n; ++v) store(masses + v, room[v]);
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
                const bool is_counted = is_active(active, r);
                if (out == nullptr) sums[r] = sums[rows + r] = 0;
                if (out != nullptr && !is_counted) std::fill_n(out + r * vocabulary, vocabulary, Gradient{});
                const Scale s{scales[r], scales[rows + r], inverse_temperature};
                const Scale t{scales[2 * rows + r], scales[3 * rows + r], teacher_inverse_temperature};
                for (int64_t start = 0; is_counted && start < vocabulary; start += kBlock) {
                    const int64_t n = std::min(kBlock, vocabulary - start);
                    if (out == nullptr) {
                        block_sums<kKind>(row + start, other + start, n, s, t, b, sums + r, sums + rows + r);
                    } else {
                        write_gradients<kKind>(
                            row + start, other + start, n, s, t, b, factor[r], sums[rows + r],
                            out + r * vocabulary + start, masses != 0 ? other + start : nullptr);
                    }
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
