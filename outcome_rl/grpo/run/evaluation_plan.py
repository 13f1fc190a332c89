"""What a run evaluates when: every set before the first step and after the last, the validation sets on the way."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import ProblemSet, load_problems
from outcome_rl.grpo.data.prompts import Prompts, build_prompts
from outcome_rl.grpo.run.evaluation import MACRO_TEST, MACRO_VALIDATION, macro_average

EvaluationSet = tuple[ProblemSet, Prompts]


class EvaluationPlan:
    """The validation and test sets of a run, with prompts.

    Attributes:
        validation, test: one set for each source, so that each has its own figures.
    """

    def __init__(self, config: TrainConfig, tokenizer: Any) -> None:
        """Read the sets.

        Raises:
            FileNotFoundError, ValueError: bad data, or two sources that share a name, so that their figures could not
                be told apart.
        """
        self.test_freq = config.trainer.test_freq
        self.validation, self.test = (
            [_read(source, config, tokenizer) for source in dict.fromkeys(sources)]
            for sources in (config.data.val_files, config.data.test_files)
        )
        self._by_name: dict[str, EvaluationSet] = {}
        for dataset, prompts in [*self.validation, *self.test]:
            known, _ = self._by_name.setdefault(dataset.name, (dataset, prompts))
            if known.fingerprint != dataset.fingerprint:
                raise ValueError(
                    f"data.val_files and data.test_files hold two different sources named {dataset.name!r}; rename one"
                )

    def sets_at(self, step: int, *, is_last: bool) -> Sequence[EvaluationSet]:
        """What is due after a step; 0 is before the first."""
        if step == 0 or is_last:
            return list(self._by_name.values())
        return self.validation if self.test_freq > 0 and step % self.test_freq == 0 else []

    @property
    def watched(self) -> str | None:
        """The data set of the rows that choose the best checkpoint, which are the validation's alone."""
        if not self.validation:
            return None
        return MACRO_VALIDATION if len(self.validation) > 1 else self.validation[0][0].name

    def averages(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """The averages that rows of one step allow and lack, by name: over several validation sets, over several test
        sets."""
        done = {row["dataset"]: row for row in rows}
        averages = {}
        for name, sets in ((MACRO_VALIDATION, self.validation), (MACRO_TEST, self.test)):
            of_sets = [done[dataset.name] for dataset, _ in sets if dataset.name in done]
            if len(sets) > 1 and len(of_sets) == len(sets) and name not in done:
                averages[name] = dict(macro_average(of_sets))
        return averages


def _read(source: str, config: TrainConfig, tokenizer: Any) -> EvaluationSet:
    dataset = load_problems([source], config.data, config.data.val_max_samples, named_columns=False)
    return dataset, build_prompts(dataset, tokenizer, config.data)
