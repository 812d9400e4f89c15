"""What an option is, said once, in the field that holds it: meaning, bounds, and where paper and published code disagree.

    @dataclass(frozen=True)
    class MyOptions(Options):
        '''Defaults are the published code's.'''

        lr: float = option(1e-3, above=0, about="rate of plain SGD")
        weight: float = option(0.5, paper=1.0, number="D2", about="factor of the contrast")

Profiles, `ostta ls options`, `ostta ls profiles`, `help(MyOptions)` and the checks of bounds all read these declarations. A plain
dataclass will do where there is nothing to say but types and defaults.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Hashable
from dataclasses import Field, dataclass, fields
from functools import cache
from numbers import Real
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from ..core.checks import shown
from ..core.types import Error

# `reference` is the defaults; `paper` has what the text of the paper says where the published code does something else; `field` is
# what we recommend outside a benchmark.
PROFILES = ("reference", "paper", "field")
# In place of a value that is the default's: an option's value may be None.
UNCHANGED: Any = object()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers that an option takes; `at_least` and `at_most` are among them, `above` and `below` are not."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        # Written so that NaN is in no bounds.
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __bool__(self) -> bool:
        return self != Bounds()

    def __str__(self) -> str:
        """In words, as they follow "is" or "a number".

        >>> str(Bounds(1, 10_000)), str(Bounds(at_least=0, below=1)), str(Bounds(at_most=1, above=0))
        ('from 1 to 10,000', 'from 0 to below 1', 'above 0 and at most 1')
        """
        if self.at_least is not None and self.at_most is not None:
            return f"from {self.at_least:,} to {self.at_most:,}"
        if self.at_least is not None and self.below is not None:
            return f"from {self.at_least:,} to below {self.below:,}"
        ends = (("at least", self.at_least), ("above", self.above), ("at most", self.at_most), ("below", self.below))
        return " and ".join(f"{word} {end:,}" for word, end in ends if end is not None)


@dataclass(frozen=True, kw_only=True)
class OptionDeclaration:
    """What is said of an option beside its name, type and default.

    about:      what it means.
    number:     of the disagreement of paper and published code that it is about, in docs/disagreements.md.
    paper:      its value in the profile `paper`, which otherwise keeps the default.
    field:      its value in the profile `field`, which otherwise keeps the default.
    bug:        a bug of the published code that the default mends; the value "reference" brings it back.
    published:  what the published code does, where the default is something else and it is no bug.
    bounds:     of a number.
    """

    about: str = ""
    number: str | None = None
    paper: Any = UNCHANGED
    field: Any = UNCHANGED
    bug: str | None = None
    published: Any = UNCHANGED
    bounds: Bounds = Bounds()

    def __str__(self) -> str:
        """In one line, for `help`."""
        notes = (str(self.bounds), self.number, None if self.paper is UNCHANGED else f"the paper has {self.paper}")
        said = "; ".join(note for note in notes if note)
        return f"{self.about} ({said})" if said else self.about


@dataclass(frozen=True, kw_only=True)
class Option(OptionDeclaration):
    """One option of an options class."""

    name: str
    hint: Any
    default: Any

    @property
    def takes(self) -> str:
        """Its type and its bounds in words."""
        return f"{describe_type(self.hint)} {self.bounds}".rstrip()

    def text(self, value: Any) -> str:
        """`value` as `--set` takes it."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, tuple):
            # Text may have commas of its own, so that several texts are written as JSON.
            free = get_args(self.hint)[:1] == (str,)
            return json.dumps(value) if free and len(value) != 1 else ",".join(map(self.text, value))
        return str(value)


def option(
    default: T,
    *,
    about: str,
    number: str | None = None,
    paper: Any = UNCHANGED,
    field: Any = UNCHANGED,
    bug: str | None = None,
    published: Any = UNCHANGED,
    bounds: tuple[float, float] | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> T:
    """The field of an option. `bounds` is short for `at_least` and `at_most`; for the rest see `Declared` and `Bounds`."""
    if bounds is not None:
        at_least, at_most = bounds
    limits = Bounds(at_least, at_most, above, below)
    said = OptionDeclaration(
        about=about, number=number, paper=paper, field=field, bug=bug, published=published, bounds=limits
    )
    # As with `dataclasses.field`, type checkers are told of the value that the field will have.
    declared: Any = dataclasses.field(default=default, metadata={OptionDeclaration: said})
    return declared  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Options:
    """What options classes inherit: numbers are held to their bounds, and `help` lists what was declared."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__dataclass_fields__" in vars(cls):  # made once more, with slots
            return
        declared: dict[str, Field[Any]] = {}
        for base in reversed(cls.__mro__[1:]):
            declared |= vars(base).get("__dataclass_fields__", {})
        # `dataclass` has not seen this class yet, so that its own fields are still where they were written.
        declared |= {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        lines = [f"    {name}: {declaration_of(one)}" for name, one in declared.items()]
        cls.__doc__ = "\n".join([cls.__doc__ or "What can be chosen.", *([""] if lines else []), *lines])

    def __post_init__(self) -> None:
        for one in fields(self):
            limits, value = declaration_of(one).bounds, getattr(self, one.name)
            several = isinstance(one.default, tuple)
            if (limits and not _is_number(value)) or (several and not isinstance(value, tuple | list)):
                raise Error(f"`{one.name}` takes {describe_type(types_of(type(self))[one.name])}, not {shown(value)}.")
            if limits and value not in limits:
                raise Error(f"`{one.name}` is {limits}, not {value}.")


def declaration_of(one: Field[Any]) -> OptionDeclaration:
    """What was declared of a field: nothing, where it was declared without `option`."""
    declared: OptionDeclaration = one.metadata.get(OptionDeclaration, OptionDeclaration())
    return declared


def list_options(options: type[Any]) -> list[Option]:
    """All options of an options class, in the order of their declaration."""
    defaults, hints = options(), types_of(options)
    return [
        Option(name=one.name, hint=hints[one.name], default=getattr(defaults, one.name), **vars(declaration_of(one)))
        for one in fields(options)
    ]


def profile_values(options: type[Any], profile: str) -> dict[str, Any]:
    """What a profile sets of the options of a class."""
    if profile == "reference":
        return {}
    values = {one.name: getattr(declaration_of(one), profile) for one in fields(options)}
    return {name: value for name, value in values.items() if value is not UNCHANGED}


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def types_of(options: type[Any]) -> dict[str, Any]:
    """The type of each option; worked out once, as reading annotations takes longer than all the rest."""
    return _types_of(cast(Hashable, options))


_types_of = cache(get_type_hints)


def describe_type(hint: Any) -> str:
    """What a value of that type is, for a sentence."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) is tuple:
        return f"a list, each {describe_type(get_args(hint)[0])}"
    if get_origin(hint) is types.UnionType:
        return " or ".join("none" if each is type(None) else describe_type(each) for each in get_args(hint))
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}.get(hint, str(hint))
