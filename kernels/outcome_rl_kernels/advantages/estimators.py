"""Advantage estimators: the reward part of an advantage, from the rewards and outcomes of a group.

| name           | advantage A_i                                                               | arXiv             |
|----------------|-----------------------------------------------------------------------------|-------------------|
| `grpo`         | (r_i - mean(r)) / (std(r) + eps)                                            | 2402.03300        |
| `dr_grpo`      | r_i - mean(r)                                                               | 2503.20783        |
| `rloo`         | r_i - mean of the other samples' r                                          | 2402.14740        |
| `maxrl`        | (r_i - mean(r)) / (mean(r) + eps)                                           | 2602.02710        |
| `pass_at_k`    | correct: (1 - p) / s; wrong: (1 - p - q) / s                                | 2508.10751        |
| `pkpo`         | 1 / C(n, k) sum over sets I of k samples with i: max r(I) - max r(I less i) | 2505.15201        |
| `unlikeliness` | `grpo` of r_i (1 - beta rank_i / n), rank 0 for the least likely sample     | 2506.02355        |
| `majority`     | `grpo` of [a_i is the most frequent answer of the group]                    | 2504.16084 (TTRL) |
| `edas`         | `grpo`, and for wrong samples a shift by the surprisal of their answer      | 2605.17333        |

p is pass@k of the group, q the probability that k - 1 of the other samples are all wrong, s = sqrt(p (1 - p)) + eps.
An estimator is a function of `Groups` and of named numbers, which a setting gives as in "pass_at_k(k=4)". It does not
synchronise with the host. A group whose samples it cannot distinguish gets exactly 0.
"""

import ast
import inspect
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from outcome_rl_kernels.advantages.groups import Groups
from outcome_rl_kernels.counts.reference import NO_ANSWER
from outcome_rl_kernels.registry import add_by_name

AdvEstimator = Callable[..., Tensor]
ADV_ESTIMATORS: dict[str, AdvEstimator] = {}
WITHOUT_REWARDS = frozenset({"majority"})  # need neither rewards nor reference answers


def register_adv_estimator(name: str) -> Callable[[AdvEstimator], AdvEstimator]:
    """Make a function available as `adv_estimator=name` in every training stack.

    Args:
        name: letters, digits and underscores; not the name of another estimator.

    Returns:
        A decorator for `function(groups: Groups, *, number=...) -> Tensor`, which returns (B, n) advantages in the
        dtype of `groups.rewards`. They must be finite.

    Raises:
        ValueError: the name is taken, or is not a name.

    Example:
        >>> @register_adv_estimator("best_of_group")
        ... def best_of_group(groups):
        ...     return (groups.rewards == groups.rewards.amax(dim=1, keepdim=True)).to(groups.rewards.dtype)
    """
    return partial(add_by_name, ADV_ESTIMATORS, "adv_estimator", name)


def parse_adv_estimator(text: str) -> tuple[str, AdvEstimator]:
    """Return the name and the function of an estimator such as "rloo", "pass_at_k(k=4)" or "module:function".

    Raises:
        ValueError: there is no such estimator, or it does not take these numbers.
    """
    match = re.fullmatch(r"(?:[^():]+:)?\s*(\w+)\s*(?:\((.*)\))?\s*", text)
    name, numbers = match.groups() if match else (text, None)
    if name not in ADV_ESTIMATORS:
        raise ValueError(
            f"adv_estimator must be one of {', '.join(map(repr, ADV_ESTIMATORS))}, with numbers as in "
            f"'pass_at_k(k=4)'; got {text!r}. Add your own by register_adv_estimator"
        )
    function = ADV_ESTIMATORS[name]
    try:
        call: Any = ast.parse(f"f({numbers or ''})", mode="eval").body
        given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        if call.args or not all(isinstance(number, int | float) for number in given.values()):
            raise ValueError("numbers are given by name")
        inspect.signature(function).bind(None, **given)
    except (SyntaxError, TypeError, ValueError) as error:
        takes = ", ".join(str(number) for number in list(inspect.signature(function).parameters.values())[1:])
        raise ValueError(f"adv_estimator {name!r} takes ({takes}); got {text!r}: {error}") from error
    return name, partial(function, **given) if given else function


@register_adv_estimator("grpo")
def grpo(groups: Groups) -> Tensor:
    if groups.scale == "none":
        return dr_grpo(groups)
    rewards_Bn = groups.rewards
    ddof = min(groups.ddof, rewards_Bn.shape[1] - 1)  # one sample deviates by 0, not by 0 / 0
    std_B1, mean_B1 = torch.std_mean(rewards_Bn, dim=1, correction=ddof, keepdim=True)
    # Where eps is 0, the smallest number avoids 0 / 0 in a group of equal rewards.
    return (rewards_Bn - mean_B1).div_(std_B1.add_(groups.eps or torch.finfo(rewards_Bn.dtype).tiny))


@register_adv_estimator("dr_grpo")
def dr_grpo(groups: Groups) -> Tensor:
    return groups.rewards - _mean(groups.rewards)


@register_adv_estimator("rloo")
def rloo(groups: Groups) -> Tensor:
    n = groups.rewards.shape[1]
    return dr_grpo(groups) * (n / max(n - 1, 1))


@register_adv_estimator("maxrl")
def maxrl(groups: Groups) -> Tensor:
    """Return NaN for a group with a negative reward: its mean is not a rate of success."""
    negative_B1 = (groups.rewards < 0).any(dim=1, keepdim=True)
    scaled_Bn = dr_grpo(groups) / (_mean(groups.rewards) + groups.eps)
    return scaled_Bn.masked_fill(negative_B1, math.nan)


@register_adv_estimator("pass_at_k")
def pass_at_k(groups: Groups, *, k: int) -> Tensor:
    dtype, n = groups.rewards.dtype, groups.rewards.shape[1]
    _check_k("pass_at_k", k, 1, n)
    correct_B1 = groups.correct.sum(dim=1, keepdim=True).to(dtype)
    all_wrong_B1 = _all_wrong(n, correct_B1, k)  # 1 - p
    deviation_B1 = ((1 - all_wrong_B1) * all_wrong_B1).sqrt() + groups.eps
    others_wrong_B1 = _all_wrong(n - 1, correct_B1, k - 1)  # q
    return (all_wrong_B1 - others_wrong_B1 * ~groups.correct) / deviation_B1


@register_adv_estimator("pkpo")
def pkpo(groups: Groups, *, k: int) -> Tensor:
    """Return s^(loo-1): sample i gains r_i - r_j over each sorted sample j < i, weighted by the sets whose maximum
    without i is r_j: C(j - 1, k - 2) of C(n, k).
    """
    n = groups.rewards.shape[1]
    _check_k("pkpo", k, 2, n)
    sorted_Bn = groups.rewards.sort(dim=1).values
    below_n = torch.arange(n, device=sorted_Bn.device, dtype=sorted_Bn.dtype)
    # C(j - 1, k - 2) / C(n, k) in factors of the size of 1: the binomials themselves overflow float32.
    weights_n = _all_wrong(n - 2, n - 2 - below_n, k - 2) * (k * (k - 1) / (n * (n - 1)))
    return (groups.rewards[:, :, None] - sorted_Bn[:, None, :]).clamp(min=0) @ weights_n


@register_adv_estimator("unlikeliness")
def unlikeliness(groups: Groups, *, beta: float = 0.25) -> Tensor:
    if groups.logps is None:
        raise ValueError("adv_estimator 'unlikeliness' ranks the samples by logps, their log-probabilities; got None")
    rank_Bn = groups.logps.argsort(dim=1, stable=True).argsort(dim=1)
    weights_Bn = 1 - rank_Bn.to(groups.rewards.dtype) * (beta / groups.rewards.shape[1])
    return grpo(groups._replace(rewards=groups.rewards * weights_Bn))


@register_adv_estimator("majority")
def majority(groups: Groups) -> Tensor:
    """Take the first of several most frequent answers, as TTRL's code does; "no answer" is never the majority."""
    keys_Bn = groups.outcome_keys
    answered_Bn = keys_Bn != NO_ANSWER
    votes_Bn = groups.multiplicity * answered_Bn
    label_B1 = keys_Bn.gather(1, votes_Bn.argmax(dim=1, keepdim=True))
    return grpo(groups._replace(rewards=((keys_Bn == label_B1) & answered_Bn).to(groups.rewards.dtype)))


@register_adv_estimator("edas")
def edas(groups: Groups, *, alpha: float = 0.4, beta: float = 0.2, kappa: float = 2.0) -> Tensor:
    """Shift the advantages of wrong samples, by at most |A| / kappa, where a group has two of them or more.

    Let p be the share of a sample's answer among the W wrong samples, S the mean of their |A|, and H the mean of their
    -ln p. The shift is -beta S where all their answers are equal, else alpha S (-ln p - H) / ln W, which sums to 0.
    """
    if not kappa > 1:
        raise ValueError(f"kappa of adv_estimator 'edas' must be > 1, or a shift could change a sign; got {kappa}")
    keys_Bn, wrong_Bn, advantages_Bn = groups.outcome_keys, ~groups.correct, grpo(groups)
    wrong_B1 = wrong_Bn.sum(dim=1, keepdim=True).clamp(min=1).to(advantages_Bn.dtype)
    same_Bn = ((keys_Bn[:, :, None] == keys_Bn[:, None, :]) & wrong_Bn[:, None, :]).sum(dim=2)
    surprisal_Bn = -(same_Bn / wrong_B1).log().where(wrong_Bn, torch.zeros_like(advantages_Bn))
    entropy_B1 = surprisal_Bn.sum(dim=1, keepdim=True) / wrong_B1
    size_B1 = (advantages_Bn.abs() * wrong_Bn).sum(dim=1, keepdim=True) / wrong_B1
    diverse_Bn = alpha * (surprisal_Bn - entropy_B1) / wrong_B1.clamp(min=2).log()
    shift_Bn = size_B1 * diverse_Bn.masked_fill(entropy_B1 == 0, -beta)
    bound_Bn = advantages_Bn.abs() / kappa
    return advantages_Bn + shift_Bn.clamp(-bound_Bn, bound_Bn) * (wrong_Bn & (wrong_B1 > 1))


def _mean(rewards_Bn: Tensor) -> Tensor:
    """Return the mean of each group by Welford's algorithm, which is exact where all rewards are equal."""
    return torch.std_mean(rewards_Bn, dim=1, correction=0, keepdim=True)[1]


def _all_wrong(n: int, correct: Tensor, k: int) -> Tensor:
    """Return C(n - correct, k) / C(n, k): the probability that k of n samples, without replacement, are all wrong."""
    result = torch.ones_like(correct)
    for drawn in range(k):
        result = result * ((n - drawn - correct).clamp(min=0) / (n - drawn))
    return result


def _check_k(name: str, k: int, least: int, n: int) -> None:
    if not isinstance(k, int) or not least <= k <= n:
        raise ValueError(
            f"k of adv_estimator {name!r} must be an integer from {least} to n={n}, the group size; got {k}"
        )
