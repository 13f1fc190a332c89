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

// Compilers vectorise arithmetic over half the registers where a loop reads bfloat16, so blocks are widened first.
template <class Value>
FOR_EACH_MACHINE void widen(const Value* from, int64_t n, float* to) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
}

template <class Value>
FOR_EACH_MACHINE void narrow(const float* from, int64_t n, Value* to) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(to + i, from[i]);
}

}  // namespace outcome_rl
