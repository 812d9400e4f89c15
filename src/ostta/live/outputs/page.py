"""`report.html`: one page about a stream, with all it shows inside it. Bounded, however long the stream was."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping
from typing import Any

from ...core.words import counted
from ...pages import DARK_STYLE, details, document, sentence
from ..digest import Digest
from ..journal import Example
from . import timeline
from .pictures import ExamplePictures

# Classes in the table and with pictures; the rest is summed up.
MOST_ROWS, MOST_STRIPS = 40, 24
STYLE = (
    DARK_STYLE
    + """
dl.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .8rem; margin: 1rem 0; }
dl.figures div { background: var(--panel); border-radius: 8px; padding: .6rem .8rem; } dl.figures dt { font-size: .85rem; color: var(--faint); }
dl.figures dd { margin: 0; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
summary:focus-visible, .scroll:focus-visible { outline: 3px solid var(--known); outline-offset: 2px; }
svg { width: 100%; height: auto; display: block; } svg text { font: 12px system-ui, sans-serif; fill: var(--faint); }
svg .grid { stroke: var(--line); } svg .event { stroke: var(--bad); } svg .known { fill: var(--known); opacity: .75; } svg .unknown { fill: var(--unknown); opacity: .75; }
svg .threshold { fill: none; stroke: var(--threshold); stroke-width: 2; stroke-dasharray: 7 4; } svg .share { fill: var(--known); opacity: .45; }
.key { font-size: .9rem; color: var(--soft); margin: .3rem 0 0; } .key i { display: inline-block; width: .75rem; height: .75rem; border-radius: 50%; }
.key i.known { background: var(--known); } .key i.unknown { background: var(--unknown); }
.key i.line { width: 1.6rem; height: 0; border-radius: 0; border-top: 2px dashed var(--threshold); vertical-align: middle; }
td.bar { width: 45%; min-width: 3rem; } td.bar div { height: .8rem; border-radius: 3px; background: var(--known); min-width: 2px; }
tr.unknown td.bar div { background: var(--unknown); } tbody th { white-space: normal; overflow-wrap: break-word; min-width: 6.2rem; }
@media (max-width: 34rem) { th, td { padding: .4rem .35rem; } svg text { font-size: 25px; } svg circle { r: 4px; } }
ul.strip { list-style: none; display: grid; grid-template-columns: repeat(auto-fill, minmax(5rem, 6rem)); gap: .5rem; padding: 0; margin: .4rem 0 1rem; }
ul.strip img { width: 100%; aspect-ratio: 1; height: auto; object-fit: contain; background: var(--panel); border-radius: 6px; display: block; }
ol.events { padding-left: 0; list-style: none; } ol.events li { border-left: 4px solid var(--unknown); padding: .1rem .8rem; margin: .6rem 0; }
ol.events small { color: var(--faint); display: block; overflow-wrap: anywhere; }
"""
)


def page(digest: Digest, examples: ExamplePictures, about: Mapping[str, Any]) -> str:
    """The page of a stream; `about` is what was run."""
    return document(
        str(about.get("title", "Stream")),
        "\n".join(
            (
                f"<main><p class='lead'>{_lead(digest)}</p>",
                _figures(digest),
                _timeline(digest),
                _events(digest),
                _answers(digest),
                _pictures(digest, examples),
                f"<h2>What was run</h2>{details('Settings', json.dumps(dict(about), indent=2, ensure_ascii=False))}</main>",
            )
        ),
        STYLE,
    )


def _lead(digest: Digest) -> str:
    if not digest.seen:
        return "No image has been seen yet."
    named = digest.classes.most_common(1)
    often = f" The most frequent answer is “{html.escape(named[0][0])}”, {named[0][1]:,} times." if named else ""
    young = (
        f" At {counted(digest.warming_up, 'image')} the threshold was too young to be trusted."
        if digest.warming_up
        else ""
    )
    return (
        f"{digest.accepted:,} of {digest.seen:,} images are one of the classes, and {digest.rejected:,} are none of them: "
        f"“I don't know”.{often}{young}"
    )


def _figures(digest: Digest) -> str:
    share = digest.accepted_share
    figures = [
        ("images", f"{digest.images:,}"),
        ("accepted", "–" if share is None else f"{share:.1%}"),
        ("I don't know", f"{digest.rejected:,}"),
        ("learned from", f"{digest.adapted:,}"),
        ("not readable", f"{digest.unreadable:,}"),
        ("events", f"{sum(digest.kinds.values()):,}"),
    ]
    if digest.unseen:
        figures.append(("nothing seen", f"{digest.unseen:,}"))
    boxes = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures)
    return f'<dl class="figures">{boxes}</dl>'


def _timeline(digest: Digest) -> str:
    if not digest.seen:
        return ""
    every = "" if digest.dot_every == 1 else f" One image in {digest.dot_every:,} is shown."
    events = "; thin lines: events" if digest.events else ""
    key = (
        '<p class="key"><i class="known"></i> a class &ensp; <i class="unknown"></i> I don\'t know &ensp; '
        f'<i class="line"></i> threshold, where there is one{events}.{every}</p>'
    )
    share = digest.accepted_share or 0.0
    first = f"Scores of {digest.seen} images in the order they came, with the threshold; the last threshold is {digest.threshold}."
    second = f"Share of accepted images over the stream; {share:.0%} over all of it."
    return (
        f"<h2>Scores over time</h2>{_chart(timeline.scores(digest, first), 'Scores over time')}{key}"
        f"<h2>Accepted over time</h2>{_chart(timeline.accepted(digest, second), 'Accepted over time')}"
        '<p class="note">The share of images that got a class. A sudden change means that the camera sees something else, or that '
        "something is wrong.</p>"
    )


def _chart(svg: str, name: str) -> str:
    return f'<figure aria-label="{name}">{svg}</figure>'


def _answers(digest: Digest) -> str:
    if not digest.seen:
        return ""
    most = max([digest.rejected, *digest.classes.values()])
    rows = [(name, count, "") for name, count in digest.classes.most_common(MOST_ROWS)]
    left = len(digest.classes) - len(rows)
    if left > 0:
        rest = sum(digest.classes.values()) - sum(count for _, count, _ in rows)
        rows.append((f"{left} more classes", rest, ""))
    rows.append(("I don't know", digest.rejected, "unknown"))
    lines = "".join(
        f'<tr class="{kind}"><th scope="row">{html.escape(name)}</th><td class="bar"><div style="width:{min(100, 100 * count / most):.1f}%"></div>'
        f"</td><td>{count:,}</td><td>{count / digest.seen:.1%}</td></tr>"
        for name, count, kind in rows
    )
    head = '<th scope="col">answer</th><th scope="col"><span hidden>bar</span></th><th scope="col">images</th><th scope="col">share</th>'
    return f'<h2>Answers</h2><div class="scroll" tabindex="0" role="region" aria-label="Answers"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _pictures(digest: Digest, examples: ExamplePictures) -> str:
    named = [name for name, _ in digest.classes.most_common() if examples.of(name)]
    strips = [_strip(name, examples.of(name)) for name in named[:MOST_STRIPS]]
    strips.append(_strip("I don't know", examples.of(None)))
    if not any(strips):
        return ""
    left = len(named) - MOST_STRIPS
    note = f'<p class="note">{left} more classes are not shown.</p>' if left > 0 else ""
    return f"<h2>Examples</h2>{''.join(strips)}{note}"


def _strip(answer: str, found: list[Example]) -> str:
    if not found:
        return ""
    pictures = "".join(
        f'<li><img alt="{_quoted(example.title)}" title="{_quoted(example.title)}" loading="lazy" '
        f'src="data:image/jpeg;base64,{base64.b64encode(example.picture).decode()}"></li>'
        for example in found
    )
    return f'<h3>{html.escape(answer)}</h3><ul class="strip">{pictures}</ul>'


def _events(digest: Digest) -> str:
    if not digest.events:
        return ""
    lines = []
    for number, _, event in reversed(digest.events):
        evidence = event.get("evidence") or {}
        numbers = ", ".join(f"{name} {_number(value)}" for name, value in evidence.items())
        small = f"<small>{html.escape(numbers)}</small>" if numbers else ""
        kind = html.escape(str(event.get("kind")).replace("_", " "))
        lines.append(f"<li><b>{kind}</b>, row {number:,}: {sentence(str(event.get('sentence', '')))}{small}</li>")
    hidden = sum(digest.kinds.values()) - len(lines)
    note = f'<p class="note">{hidden:,} earlier events are not shown.</p>' if hidden > 0 else ""
    return f'<h2>Events</h2><ol class="events" reversed>{"".join(lines)}</ol>{note}'


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _quoted(text: str) -> str:
    return html.escape(text, quote=True)
