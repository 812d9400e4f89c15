"""Options are declared once.

Bounds, meanings and profiles are read from the declaration, and objects do for keywords.
"""

from __future__ import annotations

import inspect
import io
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal

import pytest

import ostta
from helpers.cases import CLASSES, backbone
from helpers.errors import raises
from ostta.cli import main
from ostta.config.declare import UNCHANGED, Bounds, Option, Options, describe_type, list_options, option, profile_values
from ostta.config.registry import find_components
from ostta.config.resolve import (
    AdapterOptions,
    LDAOptions,
    PAlignOptions,
    RositaOptions,
    TPTOptions,
    list_options_classes,
    read_value,
    resolve,
)
from ostta.core.types import Error

DECLARED = [
    pytest.param(one, id=f"{owner}-{one.name}")
    for owner, options in list_options_classes().items()
    for one in list_options(options)
]


@dataclass(frozen=True)
class Outside(Options):
    """As somebody else would write them."""

    rate: float = option(0.5, above=0, at_most=2, paper=1.0, number="D99", about="how fast")
    kind: Literal["a", "b"] = option("a", about="which")


@dataclass(frozen=True)
class Further(Outside):
    """Inherits."""

    rate: float = option(0.25, at_least=0, about="how slowly")
    more: int = option(3, bounds=(1, 9), about="how many")


# --- declarations -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("one", DECLARED)
def test_every_option_says_what_it_means_and_takes_its_own_values(one: Option) -> None:
    assert one.about
    for value in (one.default, one.paper, one.published):
        if value is not UNCHANGED:
            assert read_value(one.name, one.text(value), one.hint) == value
            assert not one.bounds or value in one.bounds


@pytest.mark.parametrize(
    ("bounds", "words", "inside", "outside"),
    [
        (Bounds(1, 10_000), "from 1 to 10,000", (1, 10_000), (0, 10_001)),
        (Bounds(at_least=0, below=1), "from 0 to below 1", (0, 0.99), (-0.1, 1)),
        (Bounds(above=0, at_most=1), "above 0 and at most 1", (0.01, 1), (0, 1.01)),
        (Bounds(above=0, below=1), "above 0 and below 1", (0.5,), (0, 1)),
        (Bounds(above=0), "above 0", (1e-9, 1e9), (0, -1)),
        (Bounds(at_least=0), "at least 0", (0,), (-1e-9,)),
        (Bounds(at_most=5), "at most 5", (5,), (6,)),
        (Bounds(below=5), "below 5", (4,), (5,)),
    ],
)
def test_bounds_hold_what_they_say(bounds: Bounds, words: str, inside: tuple, outside: tuple) -> None:
    assert str(bounds) == words
    assert all(value in bounds for value in inside)
    assert not any(value in bounds for value in (*outside, float("nan")))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Outside(rate=0), "`rate` must be above 0 and at most 2, not 0."),
        (lambda: Outside(rate=float("nan")), "`rate` must be above 0 and at most 2, not nan."),
        (lambda: Outside(rate="fast"), "`rate` must be a number, not 'fast'."),
        (lambda: Further(more=True), "`more` must be a whole number, not True."),
        (lambda: Further(rate=-1), "`rate` must be at least 0, not -1."),
        (lambda: RositaOptions(losses=5), "`losses` must be a list, each one of re, d, u, not 5."),
        (lambda: RositaOptions(k=10, undesired_bank=10), "`undesired_bank` (10) must exceed `k` (10)"),
    ],
)
def test_an_object_out_of_its_bounds_is_one_sentence(make: Any, words: str) -> None:
    with raises("option-invalid") as caught:
        make()
    assert str(caught.value).startswith(words)


def test_what_a_class_declares_is_read_by_class() -> None:
    assert profile_values(Outside, "paper") == {"rate": 1.0}
    assert profile_values(Further, "paper") == {}
    assert [(one.name, one.default, one.takes) for one in list_options(Further)] == [
        ("rate", 0.25, "a number at least 0"),
        ("kind", "a", "one of a, b"),
        ("more", 3, "a whole number from 1 to 9"),
    ]

    @dataclass
    class Plain:
        size: int = 3

    assert (list_options(Plain)[0].takes, profile_values(Plain, "paper")) == ("a whole number", {})
    assert describe_type(int | None) == "a whole number or none"


def test_texts_with_commas_are_written_so_that_they_can_be_read() -> None:
    templates = next(one for one in list_options(AdapterOptions) if one.name == "templates")
    several = ("a {}, small", "a {}.")
    assert read_value("templates", templates.text(several), templates.hint) == several


def test_help_lists_every_option_once() -> None:
    assert inspect.getdoc(Further) == (
        "Inherits.\n\nrate: how slowly (at least 0)\nkind: which\nmore: how many (from 1 to 9)"
    )
    assert "\nrate: how fast (above 0 and at most 2; D99; the paper has 1.0)" in str(inspect.getdoc(Outside))

    @dataclass(frozen=True, slots=True)
    class Slotted(Outside):
        """Made twice by `dataclass`."""

        more: int = option(3, about="how many")

    assert str(Slotted.__doc__).count("how many") == 1
    for options in list_options_classes().values():
        for one in list_options(options):
            assert str(inspect.getdoc(options)).count(f"\n{one.name}: {one.about}") == 1


# --- objects in place of keywords -------------------------------------------------------------------------------------
def test_an_object_does_for_keywords() -> None:
    by_name = ostta.load(backbone("wrapped"), CLASSES, "rosita", lr=1e-4, losses="re,u")
    for given in (RositaOptions(lr=1e-4, losses=("re", "u")), {"lr": "1e-4", "losses": ["re", "u"]}):
        adapter = ostta.load(backbone("wrapped"), CLASSES, "rosita", options=given)
        assert adapter.resolved.values() == by_name.resolved.values()
        assert adapter.describe().keys() == by_name.describe().keys()


def test_all_fields_of_an_object_are_explicit() -> None:
    """Also those that are as by default: neither the profile nor the backbone changes what was handed over."""
    given = (RositaOptions(k=3), AdapterOptions(class_scores=True))
    resolved = resolve(
        find_components("rosita", None, "lda"), "paper", given, {"rosita": {"lr": 0.5}}, {"window": "16"}
    )
    assert (resolved.method, resolved.adapter) == given
    assert (resolved.identifier.objective, resolved.identifier.window) == ("unweighted", 16)
    owned = {one.name for options in (RositaOptions, AdapterOptions) for one in list_options(options)}
    explicit = {
        name for sources in resolved.sources.values() for name, source in sources.items() if source == "explicit"
    }
    assert explicit == owned | {"window"}


@pytest.mark.parametrize(
    ("options", "keywords", "words"),
    [
        (
            TPTOptions(),
            {},
            "`options` must be values by name or objects of RositaOptions, LDAOptions or AdapterOptions",
        ),
        (RositaOptions, {}, "not <class 'ostta.methods.rosita.RositaOptions'>."),
        ("lr=1", {}, "not 'lr=1'."),
        (None, {}, "not None."),
        ([RositaOptions(), None], {}, "not None."),
        (RositaOptions(), {"lr": 1}, "`lr` is given twice: the object of RositaOptions, which sets all its options"),
        ([LDAOptions(), LDAOptions()], {}, "`search` is given twice: the object of LDAOptions"),
        ({"lr": 1}, {"lr": 2}, "`lr` is given twice: `options` has it too."),
        ({"seed": 1}, {}, "There is no option 'seed'"),
        ({3: 1}, {}, "There is no option 3"),
        (RositaOptions(normaliser="both"), {}, "`normaliser` must be one of k, matches, not 'both'."),
        (RositaOptions(entropy_scale="much"), {}, "`entropy_scale` must be a number, not 'much'."),
    ],
)
def test_wrong_objects_are_sentences(options: Any, keywords: dict, words: str) -> None:
    with pytest.raises(Error) as caught:
        ostta.load(backbone("wrapped"), CLASSES, "rosita", options=options, **keywords)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_object_of_a_class_that_inherits_is_another_owners() -> None:
    with raises("options-invalid"):
        resolve(find_components("tpt", None, "lda"), "reference", PAlignOptions(), {})


# --- `ostta ls options` -----------------------------------------------------------------------------------------------
class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def listed(monkeypatch: pytest.MonkeyPatch, out: io.StringIO, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["ostta", "ls", *arguments])
    monkeypatch.setenv("COLUMNS", "100")
    with redirect_stdout(out), pytest.raises(SystemExit):
        main()
    return out.getvalue()


@pytest.mark.parametrize("owner", list_options_classes())
def test_ls_options_has_a_line_for_each(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody's terminal sets a width, each option is one line with all that is known of it."""
    lines = listed(monkeypatch, io.StringIO(), "options", owner).splitlines()
    options = list_options(list_options_classes()[owner])
    if not options:
        assert lines == [f"{owner} has no options."]
    for one, line in zip(options, lines[2:], strict=False):
        paper = "same" if one.paper is UNCHANGED else one.text(one.paper)
        cells = (one.name, one.takes, one.text(one.default), paper, one.number or "–", one.about)
        assert " ".join(line.split()) == " ".join(cells)


def test_ls_options_names_what_is_not_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "  dpe: gate=reference  the entropy of the" in listed(monkeypatch, io.StringIO(), "options", "dpe")
    assert "  adapter: precision=mixed  half" in listed(monkeypatch, io.StringIO(), "options", "adapter")
    assert "  adapter: precision=mixed  half" in listed(monkeypatch, io.StringIO(), "profiles")


def test_ls_options_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said = listed(monkeypatch, Terminal(), "options", "rosita")
    table = [line for line in said.splitlines() if "│" in line]
    assert any("undesired_bank" in line and "64" in line for line in table)
    assert max(map(len, table)) <= 110  # of which some are colours


def test_ls_options_of_nothing_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    listed(monkeypatch, io.StringIO(), "options", "rosta")
    assert capsys.readouterr().err == "There is no method, score or identifier 'rosta'; did you mean 'rosita'.\n"


@pytest.mark.parametrize("name", ["seed", "method", "backbone", "options", "keywords"])
def test_set_takes_options_only(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An argument of `load` that is no option used to end in a stack trace."""
    arguments = ["ostta", "stream", "docs/demo.jpg", "--classes", "cat,dog", "--set", f"{name}=3"]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr("ostta.backbones.load", lambda *_: backbone("wrapped"))
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.startswith(f"There is no option '{name}' for zero_shot with field and field")
