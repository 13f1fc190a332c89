// Sorts counted pairs by (question, outcome) as signed numbers: what snapshots and synchronisation need.

#pragma once

#include <cstdint>

namespace outcome_rl {

// Sorts the three columns together, in place. False: no memory, and the columns are as they were.
bool sort_entries(int64_t* questions, int64_t* outcomes, int64_t* counts, int64_t n);

}  // namespace outcome_rl
