// The exponential of the passes over rows of logits.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace outcome_rl {

// exp(x) as scale * (1 + excess), so that neither it nor what it lacks of 1 is rounded off.
struct Exponential {
    float excess, scale;

    float value() const { return scale * (excess + 1.0f); }
    float less_one() const { return scale * excess + (scale - 1.0f); }
};

// exp for -87 <= x <= 0, written so that compilers vectorise it. NaN stays. As exact as x, whose rounding is one of
// temperature: x log2(e) = n + r, of which n is the exponent, and a polynomial is (2^r - 1) / r to 2e-8.
inline Exponential exponential(float x) {
    constexpr float kLog2E = 1.44269504088896341f;
    const float magic = 12582912.0f + 127.0f;  // 1.5 * 2^23: adding it rounds to an integer, here to a biased exponent
    const float shifted = x * kLog2E + magic;
    const float r = x * kLog2E - (shifted - magic);
    float p = 1.540351223e-04f;
    p = p * r + 1.339073526e-03f;
    p = p * r + 9.618237615e-03f;
    p = p * r + 5.550357327e-02f;
    p = p * r + 2.402264923e-01f;
    p = p * r + 6.931471825e-01f;
    uint32_t bits;
    std::memcpy(&bits, &shifted, sizeof(bits));
    bits <<= 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof(scale));
    return {p * r, scale};
}

// Below -87 it is about 1e-38.
inline float exp_nonpositive(float x) { return exponential(x < -87.0f ? -87.0f : x).value(); }

// 0 in place of a number below the normal ones, with which a product takes 90 times as long.
inline float normal(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? 0.0f : x; }

// The exponential of the logarithm of a probability; 0 below the normal numbers.
inline float probability(float log_p) { return log_p < -87.0f ? 0.0f : exp_nonpositive(log_p); }

}  // namespace outcome_rl
