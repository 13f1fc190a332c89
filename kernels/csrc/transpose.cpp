// Columns of a matrix of 16-bit numbers as rows: processors that multiply tiles (AMX) want the rows of a factor in memory.

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "exports.h"
#include "over_rows.h"

namespace outcome_rl {

namespace {

// Rows of the matrix may lie a power of two apart, in one set of the cache: so strips of them are copied first.
constexpr int64_t kTile = 32, kStrip = 256, kStride = kStrip + kTile;

// Five times the rows of the upper half are interleaved with those of the lower one.
FOR_EACH_MACHINE void transpose_tile(const uint16_t* from, uint16_t* to) {
    uint16_t room[kTile * kTile], other[kTile * kTile];
    for (int64_t r = 0; r < kTile; ++r) std::copy_n(from + r * kStride, kTile, room + r * kTile);
    const uint16_t* given = room;
    for (uint16_t* made : {other, room, other, room, to}) {
        for (int64_t r = 0; r < kTile / 2; ++r) {
            const uint16_t *upper = given + r * kTile, *lower = given + (r + kTile / 2) * kTile;
#pragma omp simd
            for (int64_t i = 0; i < kTile; ++i) {
                made[2 * (r * kTile + i)] = upper[i];
                made[2 * (r * kTile + i) + 1] = lower[i];
            }
        }
        given = made;
    }
}

}  // namespace

// Writes `count` columns of a (rows, columns) matrix, from `first` on, as rows: (count, rows).
OUTCOME_RL_EXPORT void transpose_columns(
    const uint16_t* matrix, int64_t rows, int64_t columns, int64_t first, int64_t count, uint16_t* to,
    int32_t threads) noexcept {
    over_rows(count, rows, threads, [=](int64_t begin, int64_t end) {
        uint16_t strip[kTile * kStride] = {}, tile[kTile * kTile];
        for (int64_t top = 0; top < rows; top += kTile) {
            const int64_t height = std::min(kTile, rows - top);
            for (int64_t left = begin; left < end; left += kStrip) {
                const int64_t width = std::min(kStrip, end - left);
                for (int64_t r = 0; r < height; ++r) {
                    std::copy_n(matrix + (top + r) * columns + first + left, width, strip + r * kStride);
                }
                for (int64_t c = 0; c < width; ++c) {
                    if (c % kTile == 0) transpose_tile(strip + c, tile);
                    uint16_t* row = to + (left + c) * rows + top;
                    if (height == kTile) {
                        std::copy_n(tile + c % kTile * kTile, kTile, row);  // of a length that the compiler knows
                    } else {
                        std::copy_n(tile + c % kTile * kTile, height, row);
                    }
                }
            }
        }
    });
}

}  // namespace outcome_rl
