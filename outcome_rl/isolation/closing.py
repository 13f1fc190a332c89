"""Objects with processes or a display, which a `with` block closes at its end."""

from typing import Self


class Closing:
    """A context manager that calls its `close`."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
