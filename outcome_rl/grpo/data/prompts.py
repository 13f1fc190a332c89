"""Tokenization of problems: template, chat template, tokenizer, length limit."""

import inspect
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from outcome_rl.causal_lm import without_end
from outcome_rl.files.bounds import SETTINGS, TEMPLATE_S, time_limit, too_large
from outcome_rl.grpo.config.schema import DataConfig
from outcome_rl.grpo.types import Message, Problem, ProblemSet

logger = logging.getLogger(__name__)
_CLOCK = {"strftime_now": datetime(2024, 7, 26).strftime}  # Llama's date where a chat template has no clock


def tokenize(dataset: ProblemSet, tokenizer: Any, config: DataConfig) -> ProblemSet:
    """Add the prompts of the problems that fit, and drop the others; name and fingerprint stay.

    Raises:
        ValueError: a prompt is longer than `data.max_prompt_length` and `data.overlong_prompts` is "error", or has no
            token, no prompt is left, a chat template is needed and there is none, or it refuses a conversation.
    """
    encoded = _encode(dataset.problems, tokenizer, config)
    if not all(encoded):
        empty = dataset.problems[encoded.index([])].id
        raise ValueError(
            f"{dataset.name}: the prompt of {empty!r} has no token, so there is nothing to continue. Look at its text "
            "and at the tokenizer's chat template, or set data.apply_chat_template=false"
        )
    limit = config.max_prompt_length
    kept = [row for row, ids in enumerate(encoded) if len(ids) <= limit]
    if len(kept) < len(encoded) and config.overlong_prompts == "error":
        first = next(row for row, ids in enumerate(encoded) if len(ids) > limit)
        raise ValueError(
            f"{dataset.name}: {len(encoded) - len(kept)} of {len(encoded)} prompts are longer than "
            f"data.max_prompt_length = {limit} tokens (the first is {dataset.problems[first].id!r} with "
            f"{len(encoded[first])}). Raise the limit or set data.overlong_prompts=filter"
        )
    if not kept:
        raise ValueError(f"{dataset.name}: every prompt is longer than data.max_prompt_length = {limit}")
    if len(kept) < len(encoded):
        logger.warning("%s: left out %d of %d prompts, too long", dataset.name, len(encoded) - len(kept), len(encoded))
    return dataset._replace(prompts=tuple(encoded)).select(kept)


def _encode(problems: Sequence[Problem], tokenizer: Any, config: DataConfig) -> list[list[int]]:
    has_template = getattr(tokenizer, "chat_template", None) is not None
    # replace, not format: problems contain the braces of LaTeX
    texts = [config.prompt_template.replace("{problem}", problem.problem) for problem in problems]
    given = config.apply_chat_template_kwargs
    uses_template = has_template and config.apply_chat_template
    if uses_template and len(str(tokenizer.chat_template)) > SETTINGS:  # one step of the interpreter may take a minute
        raise too_large("the tokenizer", "its chat template", SETTINGS, "Set data.apply_chat_template=false")
    lacks = "data.apply_chat_template=false" if has_template else "the tokenizer has none"
    if given and not uses_template:
        raise ValueError(f"data.apply_chat_template_kwargs needs a chat template, but {lacks}; leave it out")
    if given and (unread := sorted(set(given) - _read_by_template(tokenizer))):
        raise ValueError(
            f"data.apply_chat_template_kwargs has {', '.join(unread)}, which the tokenizer's chat template does not "
            "read; look for the right name in it"
        )
    if not uses_template:
        if conversation := next((problem for problem in problems if problem.messages), None):
            raise ValueError(
                f"the prompt of {conversation.id!r} is a list of messages, which needs a chat template, but {lacks}. "
                "Use a model with a chat template, or write prompts as text"
            )
        return without_end(tokenizer(texts)["input_ids"], [tokenizer.eos_token_id])
    variables = _CLOCK | given  # with today's date, prompts would change from day to day, and no run could continue
    rendered = [render(problem, text, tokenizer, variables) for problem, text in zip(problems, texts, strict=True)]
    # The chat template adds the special tokens.
    return cast(list[list[int]], tokenizer(rendered, add_special_tokens=False)["input_ids"])


def _read_by_template(tokenizer: Any) -> set[str]:
    """Return the words of a tokenizer's chat template, and the arguments that transformers takes beside it."""
    words = re.findall(r"\w+", str(getattr(tokenizer, "chat_template", None) or ""))
    return {*words, *inspect.signature(tokenizer.apply_chat_template).parameters}


def render(problem: Problem, text: str, tokenizer: Any, variables: Mapping[str, Any]) -> str:
    messages = [message._asdict() for message in (*problem.messages[:-1], Message("user", text))]
    try:
        with time_limit(TEMPLATE_S, f"it takes more than {TEMPLATE_S:g} s"):
            return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **variables))
    except Exception as error:  # a template raises anything, as for a system message that its model does not know
        raise ValueError(
            f"the tokenizer's chat template refuses the prompt of {problem.id!r}: {error}. Change its messages, or set "
            "data.apply_chat_template=false"
        ) from error
