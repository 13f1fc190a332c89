// Checks of the C++ that need no Python, for machines that are emulated: each function against a plain loop in double.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

extern "C" {
const char* outcome_rl_sources() noexcept;
void row_statistics(
    int32_t, const void*, const int64_t*, const uint8_t*, int64_t, int64_t, float, double*, int32_t) noexcept;
void kept_logits(
    int32_t, const void*, const void*, const int64_t*, const int64_t*, int64_t, int64_t, float*, int32_t) noexcept;
void support_log_softmax(
    const double*,
    const int64_t*,
    const int64_t*,
    const int64_t*,
    const int64_t*,
    const uint8_t*,
    int64_t,
    int64_t,
    double*,
    int32_t) noexcept;
void support_token_gradients(
    const double*,
    const int64_t*,
    const int64_t*,
    const int64_t*,
    const double*,
    const double*,
    int64_t,
    float*,
    int32_t) noexcept;
}

namespace {

std::mt19937_64 generator(1);

void require(bool yes, const char* what) {
    if (yes) return;
    std::fprintf(stderr, "wrong: %s\n", what);
    std::exit(1);
}

void near(double found, double expected, double relative, const char* what) {
    require(std::abs(found - expected) <= relative * (1 + std::abs(expected)), what);
}

uint16_t bfloat16_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return static_cast<uint16_t>(bits >> 16);
}

float float_of(uint16_t half) {
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

// Numbers in float32, and the same rounded to bfloat16.
struct Numbers {
    std::vector<float> wide;
    std::vector<uint16_t> half;

    explicit Numbers(size_t n, float scale) : wide(n), half(n) {
        std::normal_distribution<float> normal(0, scale);
        for (size_t i = 0; i < n; ++i) {
            half[i] = bfloat16_of(normal(generator));
            wide[i] = float_of(half[i]);
        }
    }
    const void* data(int32_t kind) const { return kind == 0 ? static_cast<const void*>(wide.data()) : half.data(); }
};

void check_rows(int32_t kind) {
    const int64_t rows = 5, vocabulary = 1237;  // no multiple of a vector
    const Numbers logits(rows * vocabulary, 5);
    const std::vector<int64_t> labels{0, 1236, 7, 500, 1000};
    std::vector<double> found(4 * rows);
    row_statistics(kind, logits.data(kind), labels.data(), nullptr, rows, vocabulary, 1.25f, found.data(), 2);
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = logits.wide.data() + r * vocabulary;
        double sum = 0, weighted = 0;
        for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(1.25 * row[v]);
        for (int64_t v = 0; v < vocabulary; ++v) weighted += std::exp(1.25 * row[v]) / sum * 1.25 * row[v];
        near(found[r], 1.25 * row[labels[r]] - std::log(sum), 1e-5, "log-probability");
        near(found[rows + r], std::log(sum) - weighted, 1e-4, "entropy");
    }
}

void check_kept_logits(int32_t kind) {
    const int64_t width = 100, entries = 30;
    const Numbers hidden(10 * width, 1), weight(20 * width, 1);
    std::vector<int64_t> rows(entries), tokens(entries);
    std::vector<float> found(entries);
    for (int64_t e = 0; e < entries; ++e) rows[e] = e % 10, tokens[e] = e % 7 == 0 ? -1 : e % 20;
    kept_logits(
        kind, hidden.data(kind), weight.data(kind), rows.data(), tokens.data(), entries, width, found.data(), 1);
    for (int64_t e = 0; e < entries; ++e) {
        double sum = 0;
        for (int64_t i = 0; tokens[e] >= 0 && i < width; ++i) {
            sum += static_cast<double>(hidden.wide[rows[e] * width + i]) * weight.wide[tokens[e] * width + i];
        }
        near(found[e], sum, 1e-5, "logit of a kept token");
    }
}

// Positions that kept 1, 2, ... tokens, the last of each a duplicate; every third position is not active.
void check_support_softmax() {
    const int64_t positions = 9, tokens = 50, duplicate = -2;
    std::vector<int64_t> offsets{0}, token_ids, ids, labels;
    std::vector<uint8_t> active;
    for (int64_t n = 0; n < positions; ++n) {
        for (int64_t k = 0; k <= n; ++k) token_ids.push_back((7 * n + k) % tokens);
        labels.push_back(token_ids[offsets.back() + n / 2]);
        active.push_back(n % 3 != 2);
        token_ids.push_back(labels.back());
        offsets.push_back(static_cast<int64_t>(token_ids.size()));
    }
    ids = token_ids;
    std::vector<double> scores(ids.size()), values(3 * positions), grads(2 * positions);
    for (auto& score : scores) score = static_cast<double>(generator() % 1000) / 100 - 5;
    for (auto& grad : grads) grad = static_cast<double>(generator() % 1000) / 500 - 1;
    for (int64_t n = 0; n < positions; ++n) ids[offsets[n + 1] - 1] = duplicate;
    support_log_softmax(
        scores.data(),
        ids.data(),
        token_ids.data(),
        offsets.data(),
        labels.data(),
        active.data(),
        positions,
        tokens,
        values.data(),
        1);
    std::vector<float> found(ids.size());
    support_token_gradients(
        scores.data(), ids.data(), offsets.data(), labels.data(), values.data(), grads.data(), positions, found.data(), 1);
    for (int64_t n = 0; n < positions; ++n) {
        const int64_t last = offsets[n + 1] - 1;
        double sum = 0, entropy = 0, logp = 0;
        for (int64_t e = offsets[n]; e < last; ++e) sum += std::exp(scores[e]);
        for (int64_t e = offsets[n]; e < last; ++e) {
            const double log_p = scores[e] - std::log(sum);
            entropy -= std::exp(log_p) * log_p;
            if (ids[e] == labels[n]) logp = log_p;
        }
        const double expected[] = {logp, entropy, std::log(sum)};
        for (int64_t i = 0; i < 3; ++i) {
            near(values[i * positions + n], active[n] ? expected[i] : 0, 1e-9, "softmax of a support");
        }
        require(found[last] == 0, "gradient of a duplicate");
        for (int64_t e = offsets[n]; active[n] && e < last; ++e) {
            const double log_p = scores[e] - std::log(sum), p = std::exp(log_p);
            const double grad = grads[n] * ((ids[e] == labels[n]) - p) - grads[positions + n] * p * (log_p + entropy);
            near(found[e], grad, 1e-5, "gradient of a support's softmax");
        }
    }
}

}  // namespace

int main() {
    require(std::strlen(outcome_rl_sources()) == 64, "digest of the sources");
    for (const int32_t kind : {0, 1}) {
        check_rows(kind);
        check_kept_logits(kind);
    }
    check_support_softmax();
    std::puts("rows, kept logits and supports are right");
}
