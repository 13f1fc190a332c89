"""Pages whose tables are written from records: each table stands between two marks that name it."""


def with_block(text: str, name: str, block: str, command: str) -> str:
    """The page with what stands between the marks of `name`, which say that `command` writes it, replaced by `block`.

    Raises:
        ValueError: the page lacks the marks.
    """
    begin, end = f"<!-- {name}: written by {command} -->", f"<!-- end of {name} -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise ValueError(f"the page lacks the marks {begin} and {end}")
    return f"{head}{begin}\n{block}{end}{tail}"
