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

// exp for x <= 0 to 2 ulp of float32, written so that compilers vectorise it; below -87 it is about 1e-38. NaN stays.
// Cody-Waite reduction by ln 2, then the degree 5 minimax polynomial of Cephes' expf.
inline Exponential exponential(float x) {
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
    uint32_t bits;  // unsigned: the bits of a NaN may leave the range of a shift
    std::memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits - 0x4b400000 + 127) << 23;  // 2^n
    float scale;
    std::memcpy(&scale, &bits, sizeof(scale));
    return {p * r * r + r, scale};
}

inline float exp_nonpositive(float x) { return exponential(x).value(); }

// 0 in place of a number below the normal ones, with which a product takes 90 times as long.
inline float normal(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? 0.0f : x; }

// The exponential of the logarithm of a probability; 0 below the normal numbers.
inline float probability(float log_p) { return log_p < -87.0f ? 0.0f : exp_nonpositive(log_p); }

}  // namespace outcome_rl
