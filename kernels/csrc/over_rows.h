// Rows divided among threads, each row whole, so that results do not depend on the number of threads.

#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace outcome_rl {

// Calls work(begin, end) for ranges of all the rows of `vocabulary` values each.
template <class Work>
void over_rows(int64_t rows, int64_t vocabulary, int threads, Work work) {
    // Below this a thread is not worth its start: measured 20 us, against 0.4 ns a value.
    constexpr int64_t kLeastValuesPerThread = 65536;
    const int64_t worthwhile = rows * vocabulary / kLeastValuesPerThread;
    const int64_t count = std::max<int64_t>(1, std::min({static_cast<int64_t>(threads), rows, worthwhile}));
    const int64_t share = (rows + count - 1) / count;
    std::vector<std::thread> helpers;
    try {
        for (int64_t i = 1; i < count; ++i) {
            helpers.emplace_back([=] { work(std::min((i - 1) * share, rows), std::min(i * share, rows)); });
        }
    } catch (const std::exception&) {
        // The system gives no further thread, or no memory for one: its rows are done below.
    }
    work(std::min(static_cast<int64_t>(helpers.size()) * share, rows), rows);
    for (std::thread& helper : helpers) helper.join();
}

}  // namespace outcome_rl
