// The exported functions are plain C, called by ctypes, so no exception may leave them. Arrays are contiguous, aligned to
// their elements and checked by the caller.
// A library whose sources are not those of the checkout, or of the wheel, is refused when it is loaded (sources.cpp).

#pragma once

#include <cstdint>

#if defined(_WIN32)
#define OUTCOME_RL_EXPORT extern "C" __declspec(dllexport)
#elif defined(__GNUC__)
#define OUTCOME_RL_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define OUTCOME_RL_EXPORT extern "C"
#endif
