"""The numbers and names of the loss, checked in one place."""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from outcome_rl_kernels.checks import check_choice, check_number
from outcome_rl_kernels.loss.token_losses import TokenLoss, TokenLossFunction, token_loss_names

AnswerMaskMode = Literal["policy", "bonus", "all", "none"]
KLPenalty = Literal["k1", "k2", "k3"]
LossAggregation = Literal[
    "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]
_CHOICES = {
    "answer_mask_mode": get_args(AnswerMaskMode),
    "kl_penalty": get_args(KLPenalty),
    "loss_agg": get_args(LossAggregation),
}
_OFF = ("delta", "log_ratio_clamp", "kl_clamp")  # None switches it off


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """The numbers and names of the loss; `linear_policy_loss` documents each."""

    token_loss: str | TokenLoss | TokenLossFunction = "ppo"
    answer_mask_mode: AnswerMaskMode = "policy"
    temperature: float = 1.0
    beta: float = 0.0
    kl_penalty: KLPenalty = "k3"
    unbiased_kl: bool = False
    epsilon_low: float = 0.2
    epsilon_high: float = 0.2
    delta: float | None = None
    loss_agg: LossAggregation = "token-mean"
    entropy_coef: float = 0.0
    log_ratio_clamp: float | None = None
    kl_clamp: float | None = None

    def __post_init__(self) -> None:
        for name in SETTINGS:
            value = getattr(self, name)
            if name == "token_loss":
                _check_token_loss(value)
            elif name == "unbiased_kl":
                check_choice(name, value, (True, False))
            elif name in _CHOICES:
                check_choice(name, value, _CHOICES[name])
            elif value is None and name in _OFF:
                continue
            elif isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} must be a Python number; got {type(value).__name__}")
        check_number("beta", self.beta, least=0)
        check_number("entropy_coef", self.entropy_coef)  # a negative one lowers the entropy, as some losses mean to
        if not self.temperature > 0:
            raise ValueError(f"temperature must be > 0; got {self.temperature}")
        if not 0 <= self.epsilon_low <= 1:
            raise ValueError(f"epsilon_low must lie in [0, 1], so that 1 - epsilon_low >= 0; got {self.epsilon_low}")
        if not self.epsilon_high >= 0:
            raise ValueError(f"epsilon_high must be >= 0; got {self.epsilon_high}")
        if self.delta is not None and not self.delta > 1:
            raise ValueError(
                f"delta bounds the ratio of negative advantages from above and must be > 1; got {self.delta}"
            )
        for name in ("log_ratio_clamp", "kl_clamp"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be > 0 or None; got {value}")


SETTINGS = tuple(field.name for field in fields(LossSettings))


def check_settings(owner: str, settings: dict[str, Any]) -> LossSettings:
    """Return the settings given as keyword arguments of `owner`."""
    unknown = [name for name in settings if name not in SETTINGS]
    if unknown:
        raise TypeError(f"{owner} got an unexpected keyword argument {unknown[0]!r}; it has {', '.join(SETTINGS)}")
    return LossSettings(**settings)


def _check_token_loss(value: object) -> None:
    if isinstance(value, str):
        check_choice("token_loss", value, token_loss_names())
    elif not callable(value):
        raise TypeError(
            f"token_loss must be a name, a function (logps, entropies, inputs) -> losses, or a TokenLoss; got "
            f"{type(value).__name__}"
        )
