"""Progress of a command, on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from outcome_rl.terminal.text import on_one_line


def only_our_progress() -> None:
    """Disable the progress bars of transformers, which would overlap with ours."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


@contextmanager
def show_progress(label: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show a line that counts up on a terminal; elsewhere print lines, one at once and then one every ten seconds."""
    in_place, label = sys.stderr.isatty(), on_one_line(label)
    begin, end, seconds = ("\r", "\x1b[K", 0.1) if in_place else ("", "\n", 10.0)
    shown_at = time.monotonic()
    print(f"{begin}{label} ...", end=end, file=sys.stderr, flush=True)

    def show(done: int, total: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= seconds:
            shown_at = time.monotonic()
            print(f"{begin}{label}: {done} of {total} {unit}", end=end, file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if in_place:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
