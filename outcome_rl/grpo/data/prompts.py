"""Problems as token ids: template, chat template, tokenizer, length limit."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from outcome_rl.grpo.config.schema import DataConfig
from outcome_rl.grpo.data.problems import Problem, ProblemSet

logger = logging.getLogger(__name__)


class Prompts(NamedTuple):
    """Problems that fit, and their prompts' token ids."""

    problems: tuple[Problem, ...]
    ids: list[list[int]]


def build_prompts(dataset: ProblemSet, tokenizer: Any, config: DataConfig) -> Prompts:
    """Tokenize the problems of a set.

    Raises:
        ValueError: a prompt is longer than `data.max_prompt_length` and `data.overlong_prompts` is "error", no prompt
            is left, or a chat template was asked for that the tokenizer lacks.
    """
    encoded = _encode([problem.problem for problem in dataset.problems], tokenizer, config)
    too_long = [
        (problem.id, len(ids))
        for problem, ids in zip(dataset.problems, encoded, strict=True)
        if len(ids) > config.max_prompt_length
    ]
    if too_long and config.overlong_prompts == "error":
        name, length = too_long[0]
        raise ValueError(
            f"{dataset.name}: {len(too_long)} of {len(encoded)} prompts are longer than data.max_prompt_length = "
            f"{config.max_prompt_length} tokens (the first is {name!r} with {length}). "
            "Raise the limit or set data.overlong_prompts=filter"
        )
    kept = [
        (problem, ids)
        for problem, ids in zip(dataset.problems, encoded, strict=True)
        if len(ids) <= config.max_prompt_length
    ]
    if not kept:
        raise ValueError(
            f"{dataset.name}: every prompt is longer than data.max_prompt_length = {config.max_prompt_length}"
        )
    if too_long:
        logger.warning("%s: left out %d of %d prompts, too long", dataset.name, len(too_long), len(encoded))
    problems, ids = zip(*kept, strict=True)
    return Prompts(problems, list(ids))


def _encode(problems: Sequence[str], tokenizer: Any, config: DataConfig) -> list[list[int]]:
    # replace, not format: the problem's own braces are LaTeX
    texts = [config.prompt_template.replace("{problem}", problem) for problem in problems]
    has_template = getattr(tokenizer, "chat_template", None) is not None
    if config.apply_chat_template == "true" and not has_template:
        raise ValueError("data.apply_chat_template=true, but the tokenizer has no chat template; use auto or false")
    if config.apply_chat_template == "false" or not has_template:
        return cast(list[list[int]], tokenizer(texts)["input_ids"])
    rendered = [
        tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False)
        for text in texts
    ]
    # The template writes the special tokens itself.
    return cast(list[list[int]], tokenizer(rendered, add_special_tokens=False)["input_ids"])
