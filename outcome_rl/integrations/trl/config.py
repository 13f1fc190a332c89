"""What `OutcomeGRPOTrainer` is told beside TRL's own `GRPOConfig`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import torch

from outcome_rl.grpo.config import schema as driver
from outcome_rl.grpo.data.problems import ANSWER_KEYS, ID_KEYS
from outcome_rl_kernels import OutcomeCounts, group_advantages
from outcome_rl_kernels.advantages.api import parse_bonus
from outcome_rl_kernels.advantages.reference import is_zeroed
from outcome_rl_kernels.loss.checks import check_number
from outcome_rl_kernels.loss.reference import AnswerMaskMode

GOLD_KEYS = (*ANSWER_KEYS, "solution")  # the last as TRL's own accuracy_reward


class Columns(NamedTuple):
    """Where a row of the training data holds what exploration needs; None where it does not."""

    question_id: str | None  # None: the prompt identifies the question
    gold: str | None


@dataclass(frozen=True)
class ExplorationConfig(driver.OutcomesConfig, driver.ExplorationConfig):
    """Outcome-based exploration in TRL: the driver's settings of exploration and outcomes, and where TRL's data have
    what these need.

    With `bonus="none"` the advantages are TRL's own and no token is masked; outcomes are still counted and reported.

    Raises:
        TypeError, ValueError: a setting has the wrong type or range.
    """

    # One coefficient c, or one for each method of a sum.
    coef: float | Sequence[float] = 0.1  # type: ignore[assignment]  # the driver's is a list for the sake of its YAML
    # Column of the stable id; empty tries id, question_id, unique_id, and without one takes a hash of the prompt.
    id_key: str = ""
    # Column of the reference answer, or of a solution that ends in it; empty tries answer, gold, solution.
    answer_key: str = ""
    # Name of the reward function that tells which responses are correct; empty compares them with the reference answer.
    correct_reward: str = ""
    # With correct_reward: a response is correct if its reward is at least this.
    correct_threshold: float = 1.0

    def __post_init__(self) -> None:
        if self.answer_mask_mode not in get_args(AnswerMaskMode):
            raise ValueError(
                f"answer_mask_mode must be one of {', '.join(map(repr, get_args(AnswerMaskMode)))}; "
                f"got {self.answer_mask_mode!r}"
            )
        check_number("correct_threshold", self.correct_threshold)
        # An empty batch, so that what is wrong shows here and not after the first generation.
        no_key = torch.zeros(0, dtype=torch.int64)
        group_advantages(torch.zeros(0, 1), no_key, no_key[:, None], OutcomeCounts(1), **self.group_settings)

    @property
    def group_settings(self) -> dict[str, Any]:
        """The arguments of `group_advantages` that are settings."""
        return {
            "bonus": self.bonus,
            "coef": self.coef,
            "baseline": self.baseline,
            "zero_when_all_correct": self.zero_when_all_correct,
            "no_answer": self.no_answer,
        }

    @property
    def explores(self) -> bool:
        return parse_bonus(self.bonus) != ("none",)

    @property
    def needs_correctness(self) -> bool:
        """Whether a bonus depends on which responses are correct, by the rule for groups that are all correct."""
        return self.explores and any(is_zeroed(m, self.zero_when_all_correct) for m in parse_bonus(self.bonus))

    def columns(self, names: Collection[str]) -> Columns:
        """Find the columns of question ids and golds.

        Args:
            names: of the columns of the training data.

        Raises:
            ValueError: a named column is missing, or nothing tells which responses are correct although the bonus
                depends on it.
        """
        has = f"the training data has the columns {', '.join(map(repr, names))}"
        for setting, name in (("id_key", self.id_key), ("answer_key", self.answer_key)):
            if name and name not in names:
                raise ValueError(f"exploration.{setting} names the column {name!r}, but {has}")
        question_id = self.id_key or next((name for name in ID_KEYS if name in names), None)
        gold = self.answer_key or next((name for name in GOLD_KEYS if name in names), None)
        if gold is None and not self.correct_reward and self.needs_correctness:
            raise ValueError(
                f"bonus={self.bonus!r} gives nothing to a group whose answers are all correct, and nothing tells which "
                f"are: {has}. Name the column of the reference answer by exploration.answer_key, a reward function by "
                "exploration.correct_reward, or set exploration.zero_when_all_correct=False"
            )
        return Columns(question_id, gold)
