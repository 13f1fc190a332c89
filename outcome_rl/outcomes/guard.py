"""Last line of defence: a text that raises in spite of the grammar's bounds does not end a training step."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

logger = logging.getLogger(__name__)

MAX_LOGGED_CHARS = 200

P = ParamSpec("P")
R = TypeVar("R")


def total(otherwise: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function of texts total: where it raises, log the texts and return `otherwise` of its arguments.

    Put it below a cache, so that each text is logged once. Only errors in our own rules end here: a reading of a text
    is allowed to fail, and must say so with an exception of `canonical.lexer`, which the rules handle.

    Args:
        otherwise: the value that is safe for every text, such as `False` for "these two are equal".
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is logged
                texts = ", ".join(repr(text)[:MAX_LOGGED_CHARS] for text in args)
                logger.warning(
                    "%s failed with %s on %s; the text equals only itself. Please report it.",
                    function.__name__,
                    f"{type(error).__name__}: {error}",
                    texts,
                )
                return otherwise(*args, **kwargs)

        return call

    return decorate
