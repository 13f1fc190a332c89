#include "policy_rows.h"

#include <algorithm>
#include <cmath>

#include "over_rows.h"

namespace outcome_rl {

namespace {

struct TokenTerms {
    double loss;
    double kl;
    double ratio;
    bool clipped;
    bool is_policy;
    double logp_grad;     // d loss / d logp
    double entropy_grad;  // d loss / d entropy
};

// std::clamp would turn NaN into a bound's comparison; this keeps it. `inside` is the derivative.
double clamp(double value, double bound, double& inside) {
    inside = std::abs(value) > bound ? 0.0 : 1.0;
    return value < -bound ? -bound : (value > bound ? bound : value);
}

TokenTerms token_terms(
    double logp, double entropy, const PolicyTokens& tokens, int64_t r, const LossSettings& settings) {
    const bool in_answer = tokens.answer_mask != nullptr && tokens.answer_mask[r] != 0;
    double advantage = tokens.advantages[r];
    if (tokens.bonuses != nullptr && !(in_answer && settings.answer_mask_mode == AnswerMaskMode::kBonus)) {
        advantage += tokens.bonuses[r];
    }

    double ratio = 1, ratio_grad = 1;
    if (tokens.old_logps != nullptr) {
        const double own = logp - tokens.old_logps[r];
        const double log_ratio = tokens.sequence_log_ratios != nullptr ? tokens.sequence_log_ratios[r] : own;
        ratio = std::exp(clamp(log_ratio, settings.log_ratio_clamp, ratio_grad));
        ratio_grad *= ratio;
    } else if (!std::isfinite(logp)) {
        ratio = ratio_grad = logp - logp;  // NaN, as lp - stopgrad(lp) is
    }

    const bool below = ratio < 1 - settings.epsilon_low && advantage < 0;
    const bool above = ratio > 1 + settings.epsilon_high && advantage > 0;
    TokenTerms terms{};
    terms.clipped = below || above;
    const double nearest = below ? 1 - settings.epsilon_low : (above ? 1 + settings.epsilon_high : ratio);
    double policy = -nearest * advantage;
    double policy_grad = terms.clipped ? 0.0 : -advantage * ratio_grad;
    if (advantage < 0) {
        const double bound = -settings.delta * advantage;
        if (policy > bound) terms.clipped = true;
        if (policy >= bound) policy_grad *= policy > bound ? 0.0 : 0.5;  // a tie, as autograd shares it out
        policy = policy > bound ? bound : policy;
    }
    if (tokens.rollout_weights != nullptr) {
        policy *= tokens.rollout_weights[r];
        policy_grad *= tokens.rollout_weights[r];
    }
    terms.is_policy = !(in_answer && settings.answer_mask_mode == AnswerMaskMode::kPolicy);
    if (!terms.is_policy) {
        terms.clipped = false;
        policy = policy_grad = 0;
    }

    double kl = 0, kl_grad = 0;
    if (tokens.ref_logps != nullptr) {
        double inside_ratio, inside_kl;
        const double log_ratio = clamp(tokens.ref_logps[r] - logp, settings.log_ratio_clamp, inside_ratio);
        if (settings.kl_penalty == KlPenalty::kK1) {
            kl = -log_ratio;
            kl_grad = 1;
        } else if (settings.kl_penalty == KlPenalty::kK2) {
            kl = 0.5 * log_ratio * log_ratio;
            kl_grad = -log_ratio;
        } else {
            kl = std::expm1(log_ratio) - log_ratio;
            kl_grad = -std::expm1(log_ratio);
        }
        kl = clamp(kl, settings.kl_clamp, inside_kl);
        kl_grad *= inside_ratio * inside_kl;
    }

    // An answer token drops its policy term, but logits that are broken must show even there.
    const double weight = std::isnan(logp) ? logp : tokens.weights[r];
    terms.kl = kl;
    terms.ratio = ratio;
    terms.loss = weight * policy;
    terms.logp_grad = weight * policy_grad;
    if (settings.beta != 0) {
        terms.loss += weight * settings.beta * kl;
        terms.logp_grad += weight * settings.beta * kl_grad;
    }
    if (settings.entropy_coef != 0) {
        terms.loss -= weight * settings.entropy_coef * entropy;
        terms.entropy_grad = -weight * settings.entropy_coef;
    }
    return terms;
}

}  // namespace

template <class Logit, class Gradient>
void policy_rows(
    const LogitRows<Logit>& input,
    const PolicyTokens& tokens,
    const LossSettings& settings,
    const RowTerms& terms,
    Gradient* gradients,
    int threads) {
    over_rows(input.rows, input.vocabulary, threads, [=](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            RowStatistics row{};
            TokenTerms token{};
            const bool active = tokens.active == nullptr || tokens.active[r] != 0;
            if (active) {
                row = row_statistics(input, r);
                token = token_terms(row.logp, row.entropy, tokens, r, settings);
            }
            terms.logp[r] = static_cast<float>(row.logp);
            terms.entropy[r] = static_cast<float>(row.entropy);
            terms.loss[r] = static_cast<float>(token.loss);
            terms.kl[r] = static_cast<float>(token.kl);
            terms.ratio[r] = static_cast<float>(token.ratio);
            terms.clipped[r] = token.clipped;
            terms.is_policy[r] = token.is_policy;
            if (gradients == nullptr) continue;
            if (active) {
                const auto g = static_cast<float>(token.logp_grad), e = static_cast<float>(token.entropy_grad);
                write_row_gradient(input, r, row, g, e, gradients);
            } else {
                std::fill_n(gradients + r * input.vocabulary, input.vocabulary, Gradient{});
            }
        }
    });
}

#define POLICY_ROWS(Logit, Gradient)                                                                       \
    template void policy_rows(                                                                             \
        const LogitRows<Logit>&, const PolicyTokens&, const LossSettings&, const RowTerms&, Gradient*, int)
POLICY_ROWS(float, float);
POLICY_ROWS(float, Bfloat16);
POLICY_ROWS(Bfloat16, Bfloat16);

}  // namespace outcome_rl
