// The gradient of rows of logits as a few entries: the large ones, and a sample of the small ones whose mean is exact.
//
//     p_v = exp(logit_v / temperature - log_sum)
//     d_v = -p_v (g + e (log p_v + entropy)),    d_label = -g expm1(logp) - e exp(logp) (logp + entropy)
//
// The label's entry and those with p_v >= threshold are kept as they are. The other tokens lie side by side on a line,
// in a fixed order, each p_v / threshold long. In every unit cell of the line a random point is drawn, and a token is
// kept as d_v threshold / p_v for every point on it: a point falls on it with probability p_v / threshold in all.
// So a row keeps at most 1 / threshold + 2 entries. A row that would keep more than it has room for is drawn again with
// the threshold that fits.
//
// A point depends on the seed, the index of the row and the number of the cell, and on no thread.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "bfloat16.h"
#include "exponential.h"
#include "exports.h"
#include "over_rows.h"

namespace outcome_rl {

namespace {

// A block is kLanes columns of kDepth values: the tokens of a column are neighbours on the line.
constexpr int64_t kLanes = 16, kDepth = 16, kBlock = kLanes * kDepth;
constexpr int64_t kSpare = 3;  // entries beside 1 / threshold: the label, the last cell, and rounding

// Writes the n <= kBlock logits of a block as float32, their probabilities, zeros after them, and for each lane the sum
// of those below the threshold and the largest of all. The logits are taken relative to `anchor`, near
// temperature * log_sum, so that float32 keeps their differences.
template <class Logit>
FOR_EACH_MACHINE void probabilities(
    const Logit* logits,
    int64_t n,
    float anchor,
    float inverse_temperature,
    float rest,
    float threshold,
    float* wide,
    float* p,
    float* lane_sums,
    float* lane_maxima) {
#pragma omp simd
    for (int64_t v = 0; v < n; ++v) wide[v] = to_float(logits[v]);
    for (int64_t v = n; v < kBlock; ++v) wide[v] = -std::numeric_limits<float>::infinity();
    float sums[kLanes] = {}, maxima[kLanes] = {};
    for (int64_t i = 0; i < kBlock; i += kLanes) {
#pragma omp simd
        for (int64_t j = 0; j < kLanes; ++j) {
            const float value = probability((wide[i + j] - anchor) * inverse_temperature - rest);
            p[i + j] = value;
            sums[j] += value < threshold ? value : 0.0f;
            maxima[j] = value > maxima[j] ? value : maxima[j];
        }
    }
    std::copy_n(sums, kLanes, lane_sums);
    std::copy_n(maxima, kLanes, lane_maxima);
}

uint64_t mix64(uint64_t x) {  // the finaliser of SplitMix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

// The points of a row: one in each unit cell, in increasing order.
struct Points {
    uint64_t key;
    int64_t cell = 0;
    double next = 0;

    Points(uint64_t seed, int64_t row) : key(mix64(mix64(seed + kGolden) + kGolden * static_cast<uint64_t>(row))) { draw(); }

    void draw() {
        const uint64_t bits = mix64(key + kGolden * static_cast<uint64_t>(cell + 1));
        next = static_cast<double>(cell) + static_cast<double>(bits >> 11) * 0x1.0p-53;
    }

    // Returns how many points lie before `position`, and goes on to the next one.
    int64_t before(double position) {
        int64_t found = 0;
        for (; next < position; ++found) {
            ++cell;
            draw();
        }
        return found;
    }
};

struct Row {
    int64_t label;  // -1: in another shard of the vocabulary
    double log_sum, logp, entropy;
    double g, e;  // times the inverse temperature
};

// Writes at most `room` entries, and returns how many there are.
template <class Logit>
int64_t sample_row(
    const Logit* logits,
    int64_t vocabulary,
    float inverse_temperature,
    const Row& of,
    float threshold,
    Points points,
    int64_t room,
    int32_t* ids,
    float* values) {
    const float anchor = static_cast<float>(of.log_sum / inverse_temperature);
    const float rest = static_cast<float>(of.log_sum - static_cast<double>(anchor) * inverse_temperature);
    const float constant = static_cast<float>(of.g + of.e * of.entropy), slope = static_cast<float>(of.e);
    const double inverse_threshold = 1.0 / threshold;
    int64_t count = 0;
    double position = 0;
    const auto keep = [&](int64_t v, double value) {
        if (count < room) {
            ids[count] = static_cast<int32_t>(v);
            values[count] = static_cast<float>(value);
        }
        ++count;
    };
    if (of.label >= 0) {  // 1 - p cancels where the row is peaked, so it is taken from the logarithm
        keep(of.label, -of.g * std::expm1(of.logp) - of.e * std::exp(of.logp) * (std::max(of.logp, -87.0) + of.entropy));
    }
    float wide[kBlock], p[kBlock], lane_sums[kLanes], lane_maxima[kLanes];
    for (int64_t start = 0; start < vocabulary; start += kBlock) {
        const int64_t n = std::min(kBlock, vocabulary - start);
        probabilities(logits + start, n, anchor, inverse_temperature, rest, threshold, wide, p, lane_sums, lane_maxima);
        const auto slope_at = [&](int64_t i) {  // -d_v / p_v
            const float log_p = (wide[i] - anchor) * inverse_temperature - rest;
            return constant + slope * std::max(log_p, -87.0f);
        };
        if (of.label >= start && of.label < start + n) {
            const int64_t at = of.label - start, lane = at % kLanes;
            p[at] = 0;
            lane_sums[lane] = 0;
            for (int64_t i = lane; i < kBlock; i += kLanes) lane_sums[lane] += p[i] < threshold ? p[i] : 0.0f;
        }
        for (int64_t lane = 0; lane < kLanes; ++lane) {
            const double end = position + lane_sums[lane] * inverse_threshold;
            const bool has_large = lane_maxima[lane] >= threshold;
            float before = 0;
            for (int64_t i = lane; (has_large || points.next < end) && i < kBlock; i += kLanes) {
                if (p[i] >= threshold) keep(start + i, -static_cast<double>(p[i]) * slope_at(i));
                if (!(p[i] < threshold)) continue;
                before += p[i];
                const int64_t found = points.before(std::min(end, position + before * inverse_threshold));
                if (found > 0) keep(start + i, -static_cast<double>(found) * threshold * slope_at(i));
            }
            position = end;
        }
    }
    return count;
}

template <class Pass>
void by_logit(int32_t bfloat16, const void* logits, Pass pass) {
    bfloat16 != 0 ? pass(static_cast<const Bfloat16*>(logits)) : pass(static_cast<const float*>(logits));
}

}  // namespace

// Writes the entries of (rows, vocabulary) logits: `ids` and `values` (rows, room), of which `counts` are used, and how
// many there would be without the limit of `room`, `wanted`. Rows that are not active, and rows whose gradient is 0, have
// none. `active` null: all rows are. `entropy_grad` null: zero. `index` (rows): numbers of the rows for the choice.
OUTCOME_RL_EXPORT void sample_gradients(
    int32_t bfloat16,
    const void* logits,
    const int64_t* labels,
    const uint8_t* active,
    int64_t rows,
    int64_t vocabulary,
    float inverse_temperature,
    const double* log_sums,
    const double* logps,
    const double* entropies,
    const double* logp_grad,
    const double* entropy_grad,
    const int64_t* index,
    float threshold,
    uint64_t seed,
    int64_t room,
    int32_t* ids,
    float* values,
    int64_t* counts,
    int64_t* wanted,
    int32_t threads) noexcept {
    by_logit(bfloat16, logits, [=](auto* in) {
        over_rows(rows, vocabulary, threads, [=](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
                const double g = logp_grad[r] * inverse_temperature;
                const double e = entropy_grad == nullptr ? 0 : entropy_grad[r] * inverse_temperature;
                counts[r] = wanted[r] = 0;
                if ((active != nullptr && active[r] == 0) || (g == 0 && e == 0 && logps[r] == logps[r])) continue;
                const Row of{labels[r], log_sums[r], logps[r], entropies[r], g, e};
                const auto sample = [&](float at_least) {
                    return sample_row(
                        in + r * vocabulary, vocabulary, inverse_temperature, of, at_least, Points(seed, index[r]), room,
                        ids + r * room, values + r * room);
                };
                counts[r] = wanted[r] = sample(threshold);
                if (counts[r] > room) counts[r] = std::min(room, sample(1.0f / static_cast<float>(room - kSpare)));
            }
        });
    });
}

// Writes the entries of rows one after another, row r from offsets[r] on.
OUTCOME_RL_EXPORT void pack_entries(
    const int32_t* ids,
    const float* values,
    const int64_t* offsets,
    int64_t rows,
    int64_t room,
    int64_t* packed_ids,
    float* packed_values) noexcept {
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t count = offsets[r + 1] - offsets[r];
        std::copy_n(ids + r * room, count, packed_ids + offsets[r]);
        std::copy_n(values + r * room, count, packed_values + offsets[r]);
    }
}

// Sorts entries by token, those of a token by row: (tokens + 1) bounds, and of each entry its row and its value.
OUTCOME_RL_EXPORT void entries_by_token(
    const int64_t* ids,
    const float* values,
    const int64_t* offsets,
    int64_t rows,
    int64_t tokens,
    int64_t* bounds,
    int64_t* sorted_rows,
    float* sorted_values) noexcept {
    std::fill_n(bounds, tokens + 1, 0);
    for (int64_t e = 0; e < offsets[rows]; ++e) {
        if (ids[e] + 1 < tokens) ++bounds[ids[e] + 2];  // counted one place further than they begin
    }
    for (int64_t v = 2; v <= tokens; ++v) bounds[v] += bounds[v - 1];
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t e = offsets[r]; e < offsets[r + 1]; ++e) {
            const int64_t at = bounds[ids[e] + 1]++;
            sorted_rows[at] = r;
            sorted_values[at] = values[e];
        }
    }
}

}  // namespace outcome_rl
