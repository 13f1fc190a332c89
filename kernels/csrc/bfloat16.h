// Numbers of half precision on the CPU, which computes in float32.

#pragma once

#include <cstdint>
#include <cstring>

namespace outcome_rl {

struct Bfloat16 {
    uint16_t bits;
};

inline float to_float(float value) { return value; }

inline float to_float(Bfloat16 value) {
    const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
    float result;
    std::memcpy(&result, &bits, sizeof(result));
    return result;
}

inline void store(float* to, float value) { *to = value; }

inline void store(Bfloat16* to, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
    to->bits = static_cast<uint16_t>(value != value ? 0x7fc0 : rounded);
}

}  // namespace outcome_rl
