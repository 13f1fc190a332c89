#include "exports.h"

OUTCOME_RL_EXPORT int32_t outcome_rl_abi_version() noexcept { return 8; }
