// Rows of logits as the library gets them: which of them count, and of which types they are.

#pragma once

#include <cstdint>
#include <cstdlib>

#include "bfloat16.h"

namespace outcome_rl {

inline bool is_active(const uint8_t* active, int64_t r) { return active == nullptr || active[r] != 0; }

// Calls pass(logits, gradients) with pointers of the types that `kind` names: 0 float32, 1 bfloat16, 2 float32 with
// bfloat16 gradients.
template <class Pass>
void by_kind(int32_t kind, const void* logits, void* gradients, Pass pass) {
    const auto* wide = static_cast<const float*>(logits);
    const auto* half = static_cast<const Bfloat16*>(logits);
    switch (kind) {
        case 0: return pass(wide, static_cast<float*>(gradients));
        case 1: return pass(half, static_cast<Bfloat16*>(gradients));
        case 2: return pass(wide, static_cast<Bfloat16*>(gradients));
        default: std::abort();  // writing nothing would pass for a result
    }
}

}  // namespace outcome_rl
