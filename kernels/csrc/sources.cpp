#include "exports.h"

// OUTCOME_RL_SOURCES, from CMakeLists.txt: SHA-256 of the files of this folder, which backends.py compares.
OUTCOME_RL_EXPORT const char* outcome_rl_sources() noexcept { return OUTCOME_RL_SOURCES; }
