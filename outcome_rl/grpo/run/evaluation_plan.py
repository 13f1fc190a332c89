"""Evaluation schedule: all sets before the first and after the last step; validation sets every `test_freq` steps."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import load_problems
from outcome_rl.grpo.data.prompts import tokenize
from outcome_rl.grpo.run.evaluation import MACRO_TEST, MACRO_VALIDATION, macro_average
from outcome_rl.grpo.types import ProblemSet


class EvaluationPlan:
    """The validation and test sets of a run, with prompts.

    Attributes:
        validation, test: one set for each source, so that each has its own figures.
    """

    def __init__(self, config: TrainConfig, tokenizer: Any) -> None:
        """Read the sets.

        Raises:
            FileNotFoundError, ValueError: bad data, or two different sources with the same name in the records.
        """
        data, self.test_freq = config.data, config.trainer.test_freq
        self.validation, self.test = (
            [
                tokenize(load_problems([source], data, data.val_max_samples, named_columns=False), tokenizer, data)
                for source in dict.fromkeys(sources)
            ]
            for sources in (data.val_files, data.test_files)
        )
        self._by_name: dict[str, ProblemSet] = {}
        for dataset in [*self.validation, *self.test]:
            known = self._by_name.setdefault(dataset.name, dataset)
            if known.fingerprint != dataset.fingerprint:
                raise ValueError(
                    f"data.val_files and data.test_files hold two different sources named {dataset.name!r}; rename one"
                )

    def sets_at(self, step: int, *, is_last: bool) -> Sequence[ProblemSet]:
        """Return the sets that are due after a step; 0 is before the first."""
        if step == 0 or is_last:
            return list(self._by_name.values())
        return self.validation if self.test_freq > 0 and step % self.test_freq == 0 else []

    def averages(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Average over several validation sets and over several test sets, where the rows of a step allow it and lack
        it; by name.
        """
        done = {row["dataset"]: row for row in rows}
        averages = {}
        for name, sets in ((MACRO_VALIDATION, self.validation), (MACRO_TEST, self.test)):
            of_sets = [done[dataset.name] for dataset in sets if dataset.name in done]
            if len(sets) > 1 and len(of_sets) == len(sets) and name not in done:
                averages[name] = dict(macro_average(of_sets))
        return averages
