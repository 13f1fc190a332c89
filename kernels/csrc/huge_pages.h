#pragma once

#include "exports.h"

// Asks for huge pages in the part of `memory` that they can cover. Memory that was allocated just now is not touched yet
// where the system maps it afresh, as it does above some ten megabytes; at 4 KiB a page fault, the faults take ten times
// as long as writing zeros. Advice only: whether it is taken changes nothing but speed.
OUTCOME_RL_EXPORT void advise_huge_pages(void* memory, int64_t bytes) noexcept;
