// Products of hidden states with the kept rows of a head, their softmax, and the sums that are their gradients.
//
// An entry is a kept token of a position. Entries with a negative id or index are skipped; the softmax takes the entries
// of a position that are no duplicates.
//
//     logits[e] = hidden[rows[e]] . weight[ids[e]]                             0 where skipped
//     logp[n], entropy[n], log_sum[n] from scores[e], offsets[n] <= e < offsets[n + 1]
//     grads[e]  = g (1[ids[e] = label] - p_e) - h p_e (log p_e + entropy)      0 where skipped
//     sums[s]   = sum over offsets[s] <= e < offsets[s + 1] of coefficients[e] * table[index[e]]
//
// Every sum has one order, whatever the number of threads.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "bfloat16.h"
#include "exports.h"
#include "over_rows.h"

namespace outcome_rl {

namespace {

constexpr int64_t kBlock = 512;     // values summed in float32 before they are added in double
constexpr int64_t kColumns = 1024;  // of a sum at a time: they and those of four rows fit in the first cache
constexpr int64_t kPart = 64;       // entries summed before they are added to the sum of the others
constexpr int64_t kGroup = 512;     // segments that go through a table together
constexpr int64_t kTileBytes = 4 << 20;  // of the table, which stays in the caches meanwhile
constexpr int64_t kDuplicate = -2;
constexpr double kLeast = -800;      // a logarithm whose exponential is 0; 0 * -inf would be NaN
constexpr int64_t kExpValues = 32;  // an exponential takes as long as this many values of a product

template <class Value>
FOR_EACH_MACHINE float block_product(const Value* a, const Value* b, int64_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += to_float(a[i]) * to_float(b[i]);
    return sum;
}

// sums += coefficients[k] * rows[k] over four rows, read together: a sum is loaded and stored once for all of them.
template <class Value>
FOR_EACH_MACHINE void add_multiples(float* sums, const float* coefficients, const Value* const* rows, int64_t n) {
    const float a = coefficients[0], b = coefficients[1], c = coefficients[2], d = coefficients[3];
    const Value *of_a = rows[0], *of_b = rows[1], *of_c = rows[2], *of_d = rows[3];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        sums[i] += (a * to_float(of_a[i]) + b * to_float(of_b[i])) + (c * to_float(of_c[i]) + d * to_float(of_d[i]));
    }
}

template <class Value>
FOR_EACH_MACHINE void add_multiple(float* sums, float coefficient, const Value* row, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) sums[i] += coefficient * to_float(row[i]);
}

// sum += coefficients * rows over entries, n columns from `column` on, in parts of kPart entries; `is_first` sets it.
template <class Value>
void add_entries(
    const Value* table,
    const int64_t* index,
    const float* coefficients,
    int64_t begin,
    int64_t end,
    int64_t width,
    int64_t column,
    int64_t n,
    bool is_first,
    float* sum) {
    float part[kColumns];
    for (int64_t first = begin; first < end; first += kPart, is_first = false) {
        float* to = is_first ? sum : part;
        std::fill_n(to, n, 0.0f);
        float factors[4];
        const Value* rows[4];
        int64_t held = 0;
        for (int64_t e = first; e < std::min(first + kPart, end); ++e) {
            if (index[e] < 0) continue;
            factors[held] = coefficients[e];
            rows[held++] = table + index[e] * width + column;
            if (held == 4) {
                add_multiples(to, factors, rows, n);
                held = 0;
            }
        }
        for (int64_t k = 0; k < held; ++k) add_multiple(to, factors[k], rows[k], n);
        if (!is_first) add_multiple(sum, 1.0f, part, n);
    }
}

// Sums of segments [first, last), which go through the table together, a tile of its rows at a time: from one segment to
// the next, and not within one, rows are met again. A segment's indices increase, or the order costs time.
template <class Value>
void sums_of_segments(
    const Value* table,
    const int64_t* index,
    const float* coefficients,
    const int64_t* offsets,
    int64_t first,
    int64_t last,
    int64_t width,
    Value* sums) {
    const int64_t row_bytes = std::max<int64_t>(1, width * sizeof(Value)), tile = kTileBytes / row_bytes + 1;
    std::vector<int64_t> next(offsets + first, offsets + last);
    std::vector<float> totals;
    for (int64_t bound = tile; bound >= 0;) {
        int64_t least = -1;  // of the indices that are left
        for (int64_t s = first; s < last; ++s) {
            const int64_t begin = next[s - first];
            int64_t end = begin;
            // The first entry of a row may be its label, out of order.
            while (end < offsets[s + 1] && (index[end] < bound || end == offsets[s])) ++end;
            next[s - first] = end;
            if (end < offsets[s + 1] && (least < 0 || index[end] < least)) least = index[end];
            if (begin == end) continue;
            const bool is_first = begin == offsets[s], is_last = end == offsets[s + 1];
            if (totals.empty() && !(is_first && is_last)) totals.resize((last - first) * width);
            for (int64_t column = 0; column < width; column += kColumns) {
                const int64_t n = std::min(kColumns, width - column);
                float whole[kColumns];
                float* sum = is_first && is_last ? whole : totals.data() + (s - first) * width + column;
                add_entries(table, index, coefficients, begin, end, width, column, n, is_first, sum);
                if (is_last) narrow(sum, n, sums + s * width + column);
            }
        }
        bound = least < 0 ? -1 : (least / tile + 1) * tile;
    }
}

// Calls pass(Bfloat16{}) or pass(0.0f), whose type is that of the values.
template <class Pass>
void by_type(int32_t bfloat16, Pass pass) {
    bfloat16 != 0 ? pass(Bfloat16{}) : pass(0.0f);
}

}  // namespace

// `bfloat16` says whether hidden states and weight are bfloat16 or float.
OUTCOME_RL_EXPORT void kept_logits(
    int32_t bfloat16,
    const void* hidden,
    const void* weight,
    const int64_t* rows,
    const int64_t* token_ids,
    int64_t entries,
    int64_t width,
    float* logits,
    int32_t threads) noexcept {
    by_type(bfloat16, [=](auto value) {
        const auto* states = static_cast<const decltype(value)*>(hidden);
        const auto* head = static_cast<const decltype(value)*>(weight);
        over_rows(entries, width, threads, [=](int64_t begin, int64_t end) {
            for (int64_t e = begin; e < end; ++e) {
                double sum = 0;
                for (int64_t i = 0; token_ids[e] >= 0 && i < width; i += kBlock) {
                    const auto *a = states + rows[e] * width + i, *b = head + token_ids[e] * width + i;
                    sum += block_product(a, b, std::min(kBlock, width - i));
                }
                logits[e] = static_cast<float>(sum);
            }
        });
    });
}

// Writes (3, positions) values: log-probabilities of the labels, entropies, log-sum-exps. `active` null: all positions are;
// others get zeros. A label that is not kept, and a kept token outside [0, tokens), give NaN.
OUTCOME_RL_EXPORT void support_log_softmax(
    const double* scores,
    const int64_t* ids,
    const int64_t* token_ids,
    const int64_t* offsets,
    const int64_t* labels,
    const uint8_t* active,
    int64_t positions,
    int64_t tokens,
    double* values,
    int32_t threads) noexcept {
    if (positions == 0) return;
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    over_rows(positions, kExpValues * (offsets[positions] / positions + 1), threads, [=](int64_t begin, int64_t end) {
        const auto score_of = [=](int64_t e) { return token_ids[e] >= 0 && token_ids[e] < tokens ? scores[e] : kNan; };
        for (int64_t n = begin; n < end; ++n) {
            double maximum = std::numeric_limits<double>::lowest(), label_score = kNan, sum = 0, weighted = 0;
            const bool is_active = active == nullptr || active[n] != 0;
            for (int64_t e = offsets[n]; is_active && e < offsets[n + 1]; ++e) {
                if (ids[e] == kDuplicate) continue;
                maximum = std::max(maximum, score_of(e));
                if (token_ids[e] == labels[n]) label_score = score_of(e);
            }
            for (int64_t e = offsets[n]; is_active && e < offsets[n + 1]; ++e) {
                if (ids[e] == kDuplicate) continue;
                const double x = score_of(e) - maximum, term = std::exp(x);
                sum += term;
                weighted += term * std::max(x, kLeast);
            }
            const double log_sum = std::log(sum);
            values[n] = is_active ? label_score - maximum - log_sum : 0;
            values[positions + n] = is_active ? log_sum - weighted / sum : 0;
            values[2 * positions + n] = is_active ? maximum + log_sum : 0;
        }
    });
}

// Writes the gradients of scores, from (2, positions) `grads` of log-probabilities and entropies, and those values.
OUTCOME_RL_EXPORT void support_token_gradients(
    const double* scores,
    const int64_t* ids,
    const int64_t* offsets,
    const int64_t* labels,
    const double* values,
    const double* grads,
    int64_t positions,
    float* token_grads,
    int32_t threads) noexcept {
    if (positions == 0) return;
    over_rows(positions, kExpValues * (offsets[positions] / positions + 1), threads, [=](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
            const double entropy = values[positions + n], log_sum = values[2 * positions + n];
            const double g = grads[n], h = grads[positions + n];
            for (int64_t e = offsets[n]; e < offsets[n + 1]; ++e) {
                const double log_p = scores[e] - log_sum, p = std::exp(log_p);
                const double at_label = ids[e] == labels[n] ? 1 : 0;
                const double grad = g * (at_label - p) - h * p * (std::max(log_p, kLeast) + entropy);
                token_grads[e] = ids[e] < 0 ? 0 : static_cast<float>(grad);
            }
        }
    });
}

// `bfloat16` says whether table and sums are bfloat16 or float. Sums: (segments, width) zeros, which stay
// where a segment is empty: memory that the system has not mapped yet is not touched there.
OUTCOME_RL_EXPORT void segment_sums(
    int32_t bfloat16,
    const void* table,
    const int64_t* index,
    const float* coefficients,
    const int64_t* offsets,
    int64_t segments,
    int64_t width,
    void* sums,
    int32_t threads) noexcept {
    // Threads get equal numbers of entries and segments together.
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
    by_type(bfloat16, [=](auto value) {
        const auto* from = static_cast<const decltype(value)*>(table);
        auto* to = static_cast<decltype(value)*>(sums);
        over_rows(offsets[segments] - offsets[0] + segments, width, threads, [=](int64_t begin, int64_t end) {
            const int64_t last = first_segment(end);
            for (int64_t s = first_segment(begin); s < last; s += kGroup) {
                sums_of_segments(from, index, coefficients, offsets, s, std::min(s + kGroup, last), width, to);
            }
        });
    });
}

}  // namespace outcome_rl
