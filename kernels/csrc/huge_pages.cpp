#include "huge_pages.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

OUTCOME_RL_EXPORT void advise_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] int64_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr uintptr_t kHugePage = uintptr_t{1} << 21;
    const auto start = reinterpret_cast<uintptr_t>(memory);
    const uintptr_t begin = (start + kHugePage - 1) / kHugePage * kHugePage;
    const uintptr_t end = (start + static_cast<uintptr_t>(bytes)) / kHugePage * kHugePage;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}
