#include "support.h"

#include <algorithm>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "over_rows.h"

namespace outcome_rl {

namespace {

constexpr int64_t kBlock = 512;  // values summed in float32 before they are added in double; columns of a sum at a time
constexpr int64_t kPart = 64;    // entries summed before they are added to the sum of the others

template <class Value>
FOR_EACH_MACHINE float block_product(const Value* a, const Value* b, int64_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += to_float(a[i]) * to_float(b[i]);
    return sum;
}

template <class Value>
FOR_EACH_MACHINE void add_multiple(float* sums, float coefficient, const Value* row, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) sums[i] += coefficient * to_float(row[i]);
}

template <class Value>
FOR_EACH_MACHINE void write(const float* from, int64_t n, Value* to) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(to + i, from[i]);
}

// Asks for large pages where a gradient of V rows is written: its memory is fresh, and at 4 KiB a page fault the faults
// take ten times as long as the zeros.
void prefer_large_pages(void* begin, int64_t bytes) {
#ifdef __linux__
    constexpr uintptr_t kPage = 2 << 20;
    const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + kPage - 1) / kPage * kPage;
    const uintptr_t last = (reinterpret_cast<uintptr_t>(begin) + static_cast<uintptr_t>(bytes)) / kPage * kPage;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
    (void)begin, (void)bytes;
#endif
}

template <class Value>
void sum_of_segment(
    const Value* table,
    const int64_t* index,
    const float* coefficients,
    int64_t begin,
    int64_t end,
    int64_t width,
    Value* sum) {
    if (begin == end) std::fill_n(sum, width, Value{});
    for (int64_t column = 0; begin < end && column < width; column += kBlock) {
        const int64_t n = std::min(kBlock, width - column);
        float total[kBlock] = {};
        for (int64_t first = begin; first < end; first += kPart) {
            float part[kBlock] = {};
            for (int64_t e = first; e < std::min(first + kPart, end); ++e) {
                if (index[e] >= 0) add_multiple(part, coefficients[e], table + index[e] * width + column, n);
            }
            add_multiple(total, 1.0f, part, n);
        }
        write(total, n, sum + column);
    }
}

}  // namespace

template <class Value>
void kept_logits(
    const Value* hidden,
    const Value* weight,
    const int64_t* rows,
    const int64_t* token_ids,
    int64_t entries,
    int64_t width,
    float* logits,
    int threads) {
    over_rows(entries, width, threads, [=](int64_t begin, int64_t end) {
        for (int64_t e = begin; e < end; ++e) {
            double sum = 0;
            for (int64_t i = 0; token_ids[e] >= 0 && i < width; i += kBlock) {
                const Value *a = hidden + rows[e] * width + i, *b = weight + token_ids[e] * width + i;
                sum += block_product(a, b, std::min(kBlock, width - i));
            }
            logits[e] = static_cast<float>(sum);
        }
    });
}

template <class Value>
void segment_sums(
    const Value* table,
    const int64_t* index,
    const float* coefficients,
    const int64_t* offsets,
    int64_t segments,
    int64_t width,
    Value* sums,
    int threads) {
    // Threads get equal numbers of entries and segments together: writing zeros takes time, too.
    const auto first_segment = [=](int64_t work) {
        int64_t low = 0, high = segments;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (offsets[middle] - offsets[0] + middle < work) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    };
    prefer_large_pages(sums, segments * width * static_cast<int64_t>(sizeof(Value)));
    over_rows(offsets[segments] - offsets[0] + segments, width, threads, [=](int64_t begin, int64_t end) {
        const int64_t last = first_segment(end);
        for (int64_t s = first_segment(begin); s < last; ++s) {
            sum_of_segment(table, index, coefficients, offsets[s], offsets[s + 1], width, sums + s * width);
        }
    });
}

#define SUPPORT(Value)                                                                                           \
    template void kept_logits(                                                                                   \
        const Value*, const Value*, const int64_t*, const int64_t*, int64_t, int64_t, float*, int);              \
    template void segment_sums(                                                                                  \
        const Value*, const int64_t*, const float*, const int64_t*, int64_t, int64_t, Value*, int)
SUPPORT(float);
SUPPORT(Bfloat16);

}  // namespace outcome_rl
