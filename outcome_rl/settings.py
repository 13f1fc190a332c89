"""Settings as dataclass fields: default, help, range and effect on results are declared in one place.

    @dataclass(frozen=True)
    class SamplingConfig:
        temperature: float = setting(1.0, "Sampling temperature.", gt=0)

Range checks, the table of settings in the documentation, the listing on the command line and the comparison of a
checkpoint with the run that continues it are all read from these fields.
"""

import copy
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_KEY = "outcome_rl.setting"
_PLURALS = {bool: "booleans", int: "integers", float: "numbers", str: "strings"}
_SINGULARS = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


@dataclass(frozen=True)
class Setting:
    """One setting of a configuration: its declaration, its dotted name and its value."""

    name: str
    value: Any
    default: Any
    type: Any
    help: str
    gt: float | None
    ge: float | None
    lt: float | None
    le: float | None
    also: float | None
    choices: tuple[Any, ...]
    affects_results: bool

    @property
    def range(self) -> str:
        """Allowed numbers in words, such as "> 0", "in (0, 1]" or ">= 1, or -1"; empty if every finite one is."""
        low, high = self._bounds()
        if low and high:
            text = f"in {'[' if self.ge is not None else '('}{low[1]}, {high[1]}{']' if self.le is not None else ')'}"
        else:
            text = " ".join(low or high)
        return text if self.also is None else f"{text}, or {self.also}"

    @property
    def allowed(self) -> str:
        """Allowed values in words: the choices or the range; empty if the type says it all."""
        choices = self.choices or [
            choice for one in _alternatives(self.type) if get_origin(one) is Literal for choice in get_args(one)
        ]
        text = ", ".join(map(yaml_text, choices)) if choices else self.range
        return f"{text}, or null" if text and type(None) in _alternatives(self.type) else text

    @property
    def default_text(self) -> str:
        """The default as YAML and the command line spell it."""
        return yaml_text(self.default)

    def parse(self, value: Any) -> Any:
        """Convert a value from YAML or the command line to the declared type, and check it.

        One value stands for a list of one, text that spells a number for that number, and where text is expected a
        number or boolean for the text that spells it.

        Raises:
            TypeError, ValueError: as `check`.
        """
        parsed = _parsed(value, self.type)
        replace(self, value=parsed).check()
        return parsed

    def check(self) -> None:
        """Raise if the value does not fit the declaration.

        Raises:
            TypeError: the value has the wrong type.
            ValueError: it is outside the range, not finite, or none of the choices.
        """
        for choices in (_literal_choices(self.type), self.choices):
            for item in _items(self.value) if choices else ():
                if item is not None and item not in choices:
                    several = isinstance(self.value, list | tuple)
                    raise ValueError(
                        self._message(f"{'some' if several else 'one'} of {', '.join(map(repr, choices))}")
                    )
        if not _fits(self.value, self.type):
            raise TypeError(self._message(_type_text(self.type)))
        for number in _items(self.value):
            if isinstance(number, bool) or not isinstance(number, int | float):
                continue
            if not self._in_range(number):
                raise ValueError(self._message(self.range))
            if not math.isfinite(number):
                raise ValueError(self._message("finite"))

    def _bounds(self) -> tuple[tuple[str, str] | tuple[()], tuple[str, str] | tuple[()]]:
        low = [(sign, f"{bound:g}") for sign, bound in ((">", self.gt), (">=", self.ge)) if bound is not None]
        high = [(sign, f"{bound:g}") for sign, bound in (("<", self.lt), ("<=", self.le)) if bound is not None]
        return (low[0] if low else ()), (high[0] if high else ())

    def _in_range(self, number: float) -> bool:
        # Negated comparisons would let NaN pass.
        return (self.also is not None and number == self.also) or (
            (self.gt is None or number > self.gt)
            and (self.ge is None or number >= self.ge)
            and (self.lt is None or number < self.lt)
            and (self.le is None or number <= self.le)
        )

    def _message(self, expected: str) -> str:
        hint = f"; the default is {self.default_text}" if self.default not in ("", []) else ""
        return f"{self.name} must be {expected}; got {self.value!r}{hint}"


def setting(
    default: T,
    help: str,
    *,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    also: float | None = None,
    choices: Sequence[Any] = (),
    affects_results: bool = True,
) -> T:
    """Declare a setting: a dataclass field that knows its range, help text and effect on results.

    Args:
        default: the default; a mutable one is copied for every instance.
        help: one or two sentences for the documentation and the command line.
        gt, ge, lt, le: bounds of a number, or of every number of a list; exclusive and inclusive.
        also: a number that is allowed outside the bounds, such as -1 for "all".
        choices: allowed values, or allowed items of a list. A `Literal` annotation declares them already.
        affects_results: whether a run computes something else under another value. If not, a run that continues a
            checkpoint may change it.
    """
    if not help.strip():
        raise ValueError("help must describe the setting; got an empty text")
    if gt is not None and ge is not None:
        raise ValueError(f"give gt or ge, not both; got gt={gt}, ge={ge}")
    if lt is not None and le is not None:
        raise ValueError(f"give lt or le, not both; got lt={lt}, le={le}")
    declared = {"help": help, "gt": gt, "ge": ge, "lt": lt, "le": le, "also": also}
    metadata = {_KEY: {**declared, "choices": tuple(choices), "affects_results": affects_results}}
    if isinstance(default, list | dict | set):
        return field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def settings_of(config: Any, prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of a configuration, nested sections included, under its dotted name.

    Args:
        config: a dataclass instance, or a dataclass whose fields all have defaults (the values are then the defaults).
        prefix: put before every name, such as "exploration.".
    """
    # Not from an instance: a class may check itself in __post_init__, and would come back here.
    kind = config if isinstance(config, type) else type(config)
    defaults = {one.name: _default(one) for one in fields(kind)}
    yield from _walk(kind, defaults if kind is config else vars(config), defaults, prefix)


def check_settings(config: Any, prefix: str = "") -> None:
    """Check the type, range and choices of every setting of a configuration.

    Args:
        config: a dataclass instance; sections may be nested.
        prefix: put before the names in messages, such as "exploration.".

    Raises:
        TypeError: a setting has the wrong type. The message names the setting, what was expected and what came.
        ValueError: a number is out of range or not finite, or a value is none of the choices.
    """
    for one in settings_of(config, prefix):
        one.check()


def with_values(config: T, values: Mapping[str, Any]) -> T:
    """Copy a configuration with other values.

    Args:
        config: a dataclass instance; sections may be nested.
        values: dotted name -> value.

    Raises:
        TypeError, ValueError: a section refuses its values. The message names the section.
    """
    sections: dict[str, dict[str, Any]] = {}
    changes: dict[str, Any] = {}
    for name, value in values.items():
        first, _, rest = name.partition(".")
        if rest:
            sections.setdefault(first, {})[rest] = value
        else:
            changes[first] = value
    for section, inner in sections.items():
        try:
            changes[section] = with_values(getattr(config, section), inner)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{section}.{error}") from error
    return replace(config, **changes)  # type: ignore[type-var]


def yaml_text(value: Any) -> str:
    """A value as YAML and the command line spell it: null, true, 0.5, [a, b]."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(yaml_text, value))}]"
    return str(value)


def _walk(kind: Any, values: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str) -> Iterator[Setting]:
    annotations = get_type_hints(kind)
    for one in fields(kind):
        value, default = values[one.name], defaults[one.name]
        if _KEY in one.metadata:
            yield Setting(f"{prefix}{one.name}", value, default, annotations[one.name], **one.metadata[_KEY])
        elif is_dataclass(default):
            section = type(default)
            if not isinstance(value, section):
                raise TypeError(f"{prefix}{one.name} must be a {section.__name__}; got {value!r}")
            yield from _walk(section, vars(value), vars(default), f"{prefix}{one.name}.")


def _default(one: Field[Any]) -> Any:
    return one.default_factory() if one.default_factory is not MISSING else one.default


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _literal_choices(annotation: Any) -> tuple[Any, ...]:
    """The values of `Literal[...]` or `Literal[...] | None`; none if other types are allowed too."""
    alternatives = [one for one in _alternatives(annotation) if one is not type(None)]
    if not all(get_origin(one) is Literal for one in alternatives):
        return ()
    return tuple(choice for one in alternatives for choice in get_args(one))


def _fits(value: Any, annotation: Any) -> bool:
    return any(_fits_one(value, one) for one in _alternatives(annotation))


def _fits_one(value: Any, annotation: Any) -> bool:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return True
    if origin is Literal:
        return value in arguments
    if origin in (list, tuple, Sequence) and not isinstance(value, list | tuple):
        return False
    if origin is tuple and arguments[-1] is not Ellipsis:
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if origin in (list, tuple):
        return all(_fits(item, arguments[0]) for item in value)
    if annotation in (int, float):
        return isinstance(value, int if annotation is int else int | float) and not isinstance(value, bool)
    return isinstance(value, origin or annotation)


def _parsed(value: Any, annotation: Any) -> Any:
    kinds = _alternatives(annotation)
    several = next((kind for kind in kinds if get_origin(kind) in (list, tuple)), None)
    if several is not None and isinstance(value, list | tuple):
        return get_origin(several)(_parsed(item, get_args(several)[0]) for item in value)
    if float in kinds and isinstance(value, int) and not isinstance(value, bool) and int not in kinds:
        return float(value)
    if _fits(value, annotation):
        return value
    if isinstance(value, str):
        for kind in (kind for kind in (int, float) if kind in kinds):
            with suppress(ValueError):
                return kind(value)
    elif isinstance(value, bool | int | float) and any(kind is str or get_origin(kind) is Literal for kind in kinds):
        return yaml_text(value)
    if several is not None and isinstance(value, str | int | float):
        return get_origin(several)([_parsed(value, get_args(several)[0])])
    return value


def _type_text(annotation: Any) -> str:
    texts = [_one_type_text(one) for one in _alternatives(annotation) if one is not type(None)]
    return " or ".join(texts) + (" or null" if type(None) in _alternatives(annotation) else "")


def _one_type_text(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if origin is tuple and arguments[-1] is not Ellipsis:
        return f"{len(arguments)} {_PLURALS.get(arguments[0], 'values')}"
    if origin in (list, tuple):
        return f"a list of {_PLURALS.get(arguments[0], 'values')}"
    if origin is Callable:
        return "a function"
    return _SINGULARS.get(annotation) or str(getattr(annotation, "__name__", annotation))
