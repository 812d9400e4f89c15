"""Declare options as dataclass fields with a description, bounds and the values of the profiles.

    @dataclass(frozen=True)
    class MyOptions(Options):
        '''Defaults of the published code.'''

        lr: float = option(1e-3, above=0, about="rate of plain SGD")
        weight: float = option(0.5, paper=1.0, number="D2", about="factor of the contrast")

Profiles, `ostta ls options`, `ostta ls profiles`, `help(MyOptions)` and the bounds checks read these declarations. A
plain dataclass is enough if options have only types and defaults.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Hashable
from dataclasses import Field, dataclass, fields
from functools import cache
from inspect import cleandoc
from numbers import Real
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from ..core.checks import shown
from ..core.types import Error

# `reference`: the defaults. `paper`: values of the paper where the published code differs. `field`: recommended values
# outside a benchmark.
PROFILES = ("reference", "paper", "field")
# Sentinel: the profile keeps the default. None cannot be used, because it may be the value of an option.
UNCHANGED: Any = object()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a number: `at_least` and `at_most` are inclusive, `above` and `below` exclusive."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        # The comparisons are false for NaN.
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __bool__(self) -> bool:
        return self != Bounds()

    def __str__(self) -> str:
        """Return the bounds as text that follows "must be" or "a number".

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
    """Metadata of an option, in addition to its name, type and default.

    about:      meaning of the option.
    number:     number of the disagreement between paper and published code, in docs/disagreements.md.
    paper:      value in the profile `paper`; the default value if omitted.
    field:      value in the profile `field`; the default value if omitted.
    bug:        bug of the published code that the default fixes; the value "reference" restores it.
    published:  behaviour of the published code if the default differs for another reason than a bug.
    bounds:     bounds of a number.
    """

    about: str = ""
    number: str | None = None
    paper: Any = UNCHANGED
    field: Any = UNCHANGED
    bug: str | None = None
    published: Any = UNCHANGED
    bounds: Bounds = Bounds()

    def __str__(self) -> str:
        """Return one line for `help`."""
        notes = (str(self.bounds), self.number, None if self.paper is UNCHANGED else f"the paper has {self.paper}")
        joined = "; ".join(note for note in notes if note)
        return f"{self.about} ({joined})" if joined else self.about


@dataclass(frozen=True, kw_only=True)
class Option(OptionDeclaration):
    """One option of an options class."""

    name: str
    hint: Any
    default: Any

    @property
    def takes(self) -> str:
        """Type and bounds as text."""
        return f"{describe_type(self.hint)} {self.bounds}".rstrip()

    def text(self, value: Any) -> str:
        """Return `value` as text for `--set`."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, tuple):
            # Strings may contain commas, so a list of strings is written as JSON.
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
    """Return the dataclass field of an option. `bounds` is shorthand for the pair (`at_least`, `at_most`)."""
    if bounds is not None:
        at_least, at_most = bounds
    limits = Bounds(at_least, at_most, above, below)
    declaration = OptionDeclaration(
        about=about, number=number, paper=paper, field=field, bug=bug, published=published, bounds=limits
    )
    # As with `dataclasses.field`, type checkers see the type of the value.
    declared: Any = dataclasses.field(default=default, metadata={OptionDeclaration: declaration})
    return declared  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Options:
    """Base of options classes: checks the bounds of numbers, and adds the declarations to the docstring."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__dataclass_fields__" in vars(cls):  # `dataclass` creates a second class for slots
            return
        declared: dict[str, Field[Any]] = {}
        for base in reversed(cls.__mro__[1:]):
            declared |= vars(base).get("__dataclass_fields__", {})
        # `dataclass` runs later, so the fields are still class attributes.
        declared |= {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        lines = [f"{name}: {declaration_of(field)}" for name, field in declared.items()]
        # Python 3.13 removes the indentation of a docstring, earlier versions keep it.
        cls.__doc__ = "\n".join([cleandoc(cls.__doc__ or "Options."), *([""] if lines else []), *lines])

    def __post_init__(self) -> None:
        for field in fields(self):
            bounds, value = declaration_of(field).bounds, getattr(self, field.name)
            is_list = isinstance(field.default, tuple)
            if (bounds and not _is_number(value)) or (is_list and not isinstance(value, tuple | list)):
                expected = describe_type(types_of(type(self))[field.name])
                raise Error(f"`{field.name}` must be {expected}, not {shown(value)}.", code="option-invalid")
            if bounds and value not in bounds:
                raise Error(f"`{field.name}` must be {bounds}, not {value}.", code="option-invalid")


def declaration_of(field: Field[Any]) -> OptionDeclaration:
    """Return the declaration of a field; an empty declaration if the field was declared without `option`."""
    declared: OptionDeclaration = field.metadata.get(OptionDeclaration, OptionDeclaration())
    return declared


def list_options(options: type[Any]) -> list[Option]:
    """Return the options of an options class in declaration order."""
    defaults, hints = options(), types_of(options)
    return [
        Option(name=one.name, hint=hints[one.name], default=getattr(defaults, one.name), **vars(declaration_of(one)))
        for one in fields(options)
    ]


def profile_values(options: type[Any], profile: str) -> dict[str, Any]:
    """Return the values that a profile sets for an options class."""
    if profile == "reference":
        return {}
    values = {field.name: getattr(declaration_of(field), profile) for field in fields(options)}
    return {name: value for name, value in values.items() if value is not UNCHANGED}


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def types_of(options: type[Any]) -> dict[str, Any]:
    """Return the type of each option. The result is cached, because evaluating annotations is slow."""
    return _types_of(cast(Hashable, options))


_types_of = cache(get_type_hints)


def describe_type(hint: Any) -> str:
    """Return the type as text for a message."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) is tuple:
        return f"a list, each {describe_type(get_args(hint)[0])}"
    if get_origin(hint) is types.UnionType:
        return " or ".join("none" if each is type(None) else describe_type(each) for each in get_args(hint))
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}.get(hint, str(hint))
