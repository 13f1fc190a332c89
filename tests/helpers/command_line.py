"""Call the `main` of a command in this process, as a shell would call the command."""

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple


class Result(NamedTuple):
    """Exit status and output of a command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def invoke(main: Callable[[Sequence[str]], int | None], *arguments: object) -> Result:
    """Run `main` on the arguments, each as text; errors that are not `SystemExit` pass through."""
    with redirect_stdout(io.StringIO()) as stdout, redirect_stderr(io.StringIO()) as stderr:
        try:
            status: object = main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            status = exit_.code
    assert status is None or isinstance(status, int)
    return Result(status or 0, stdout.getvalue(), stderr.getvalue())
