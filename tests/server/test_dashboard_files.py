"""What can be said of the dashboard's files without a browser.

Colours and their contrast, and nothing that a strict policy refuses.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ostta import pages
from ostta.server.app import DASHBOARD

FOLDER = DASHBOARD
PAGES = (Path(pages.__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
FILES = sorted(path for path in FOLDER.iterdir() if path.is_file())
TEXTS = {path.name: path.read_text() for path in FILES}
# WCAG 2.2: text, and what must be seen to understand a picture or to find a control.
TEXT, PICTURE = 4.5, 3.0
PAIRS = [
    *(
        (front, ground, TEXT)
        for front in ("text", "soft", "faint", "known", "unknown", "bad")
        for ground in ("page", "panel")
    ),
    ("on-button", "button", TEXT),
    *((front, ground, PICTURE) for front in ("good", "edge", "threshold") for ground in ("page", "panel")),
    # The bars of charts, and the signs inside the guard lights.
    ("known", "line", PICTURE),
    ("unknown", "line", PICTURE),
    ("edge", "line", PICTURE),
    ("page", "good", PICTURE),
]


def variables(css: str) -> dict[str, str]:
    return {name: colour.lower() for name, colour in re.findall(r"--([\w-]+): (#[0-9a-fA-F]{3,6});", css)}


def schemes() -> dict[str, dict[str, str]]:
    light, dark = TEXTS["colours.css"].split("@media")
    return {"light": variables(light), "dark": variables(dark)}


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    linear = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in linear)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_the_standard_says() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_told_apart(scheme: str) -> None:
    colours = schemes()[scheme]
    found = {(front, ground): (contrast(colours[front], colours[ground]), least) for front, ground, least in PAIRS}
    assert {pair: round(ratio, 2) for pair, (ratio, least) in found.items() if ratio < least} == {}


def test_the_colours_are_those_of_all_pages() -> None:
    light, dark = re.split(r"@media[^{]*dark[^{]*\{", PAGES.split("\nbody {")[0])
    for scheme, css in {"light": light, "dark": dark}.items():
        # Charts on pages have numbered colours besides, for as many methods as there are.
        common = {name: colour for name, colour in variables(css).items() if not re.fullmatch(r"c\d", name)}
        assert len(common) == 10
        assert {name: schemes()[scheme].get(name) for name in common} == common


def test_every_colour_that_is_used_is_declared_in_both_schemes() -> None:
    used = {name for text in TEXTS.values() for name in re.findall(r"var\(--([\w-]+)\)", text)}
    for colours in schemes().values():
        assert used <= set(colours)


def test_nothing_that_a_strict_content_security_policy_refuses() -> None:
    page = TEXTS["index.html"]
    assert not re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)[^>]*>", page)
    for name, text in TEXTS.items():
        if name.endswith(".js"):
            # Data becomes text, never markup, code or a style attribute.
            assert not re.findall(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|style:", text
            ), name


def test_no_address_outside() -> None:
    for name, text in TEXTS.items():
        found = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text)) - {"http://www.w3.org/2000/svg"}
        assert not found, name


def test_every_file_is_asked_for() -> None:
    asked = {"index.html"} | {
        name.rpartition("/")[2]
        for text in TEXTS.values()
        for name in re.findall(r"[\"'](?:static/|\./)([\w./]+)[\"']", text)
    }
    assert asked == set(TEXTS)
