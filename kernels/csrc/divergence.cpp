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
#include <vector>

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

// Of a token: its part of the divergence, and of X; slope and p, so that the gradient is slope - X p (p is 0 where X is); and
// log((p + q) / 2), to 6e-4.
struct Terms {
    float value, inner, slope, p, mass;
};

template <int kKind>
inline Terms terms_of(float log_p, float log_q, float b) {
    const bool up = log_p > log_q;
    const float high = up ? log_p : log_q, least = up ? log_q : log_p, gap = -std::fabs(log_p - log_q);
    const float low = gap > -87.0f ? gap : -87.0f;  // that where both models forbid a token, too
    const Exponential ratio = exponential(low);
    const float e = ratio.less_one(), large = probability(high);
    const float small = large * (least < -87.0f ? 0.0f : ratio.value());  // no product is below the normal numbers
    const float p = up ? large : small, q = up ? small : large, excess = up ? -large * e : large * e;  // p - q
    const float mass = high + e * (0.5089f + e * (-0.0782f + e * 0.1056f));
    if constexpr (kKind == 0) {
        const float slope = p == 0 ? 0.0f : p * (log_p - log_q);
        return {slope - excess, slope - excess, slope, p, mass};
    } else if constexpr (kKind == 1) {
        return {excess - (q == 0 ? 0.0f : q * (log_p - log_q)), 0.0f, excess, 0.0f, mass};
    } else {
        const float share = up ? b : 1 - b, mixed = log1p_nonpositive(share * e);  // log(m / larger)
        const float of_large = -large * mixed, of_small = small * (low - mixed), slope = up ? of_large : of_small;
        return {of_large + share * (of_small - of_large), slope - b * excess, slope, p, mass};
    }
}

// Adds to the two sums, and writes the slopes and p of a block, and the masses less kSlack over the teacher's logits.
template <int kKind>
FOR_EACH_MACHINE void block_terms(
    const float* student, float* teacher, int64_t n, Scale s, Scale t, float b, double* sums, float* slopes, float* ps) {
    float values = 0, inners = 0;
#pragma omp simd reduction(+ : values, inners)
    for (int64_t v = 0; v < n; ++v) {
        const Terms of = terms_of<kKind>(s.log_p(student[v]), t.log_p(teacher[v]), b);
        values += of.value;
        inners += of.inner;
        slopes[v] = of.slope;
        ps[v] = of.p;
        teacher[v] = of.mass - kSlack;
    }
    sums[0] += values;
    sums[1] += inners;
}

// Where a KL is infinite, the gradient of tokens without probability is 0.
FOR_EACH_MACHINE void block_gradients(
    const float* slopes, const float* ps, int64_t n, float factor, float inner, float* to) {
#pragma omp simd
    for (int64_t v = 0; v < n; ++v) {
        to[v] = normal(factor * (slopes[v] - (ps[v] == 0 ? 0.0f : ps[v] * inner)));
    }
}

}  // namespace

// Writes (2, rows) divergences and X to `sums`, unless `has_sums` says that they are there; then, if `gradients` is given,
// `factor` (rows) times the gradients of rows, and with `masses` also log masses over the teacher's logits. `scales`
// (4, rows): anchor and rest of the student, then of the teacher.
OUTCOME_RL_EXPORT void divergence_rows(
    int32_t kind, const void* student, void* teacher, const uint8_t* active, int64_t rows, int64_t vocabulary,
    float inverse_temperature, float teacher_inverse_temperature, const float* scales, int32_t divergence, float b,
    int32_t has_sums, double* sums, const double* factor, void* gradients, int32_t masses, int32_t threads) noexcept {
    by_kind(kind, student, gradients, [=](auto* in, auto* out) {
        using Logit = std::remove_const_t<std::remove_pointer_t<decltype(in)>>;
        using Gradient = std::remove_pointer_t<decltype(out)>;
        const auto pass = [=](auto of_kind, int64_t begin, int64_t end) {
            std::vector<float> kept(2 * (out == nullptr ? kBlock : vocabulary));  // slopes and p, for the gradients
            float *slopes = kept.data(), *ps = slopes + kept.size() / 2, students[kBlock], teachers[kBlock];
            for (int64_t r = begin; r < end; ++r) {
                const Logit* row = in + r * vocabulary;
                Logit* other = static_cast<Logit*>(teacher) + r * vocabulary;
                const Scale s{scales[r], scales[rows + r], inverse_temperature};
                const Scale t{scales[2 * rows + r], scales[3 * rows + r], teacher_inverse_temperature};
                const float nan = 0 * (s.anchor + s.rest + t.anchor + t.rest);  // 0 where both rows are of numbers
                const bool is_counted = is_active(active, r);
                double found[] = {nan, nan};
                for (int64_t start = 0; is_counted && start < vocabulary; start += kBlock) {
                    const int64_t n = std::min(kBlock, vocabulary - start), at = out == nullptr ? 0 : start;
                    widen(row + start, n, students);
                    widen(other + start, n, teachers);
                    block_terms<decltype(of_kind)::value>(students, teachers, n, s, t, b, found, slopes + at, ps + at);
                    if (masses != 0) narrow(teachers, n, other + start);
                }
                if (has_sums == 0) {
                    sums[r] = is_counted ? found[0] : 0;
                    sums[rows + r] = is_counted ? found[1] : 0;
                }
                if (out == nullptr) continue;
                if (!is_counted) std::fill_n(out + r * vocabulary, vocabulary, Gradient{});
                for (int64_t start = 0; is_counted && start < vocabulary; start += kBlock) {
                    const int64_t n = std::min(kBlock, vocabulary - start);
                    block_gradients(slopes + start, ps + start, n, factor[r] + nan, sums[rows + r], students);
                    narrow(students, n, out + r * vocabulary + start);
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
