"""The pieces of a self-contained HTML page: no script, no address outside, everything escaped."""

from __future__ import annotations

import base64
import html
import re

from ..tables.layout import Block, Text
from .run_pictures import Picture

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #111827; max-width: 62rem; margin: 0 auto; padding: 1.2rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .6rem 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; } h4 { font-size: .95rem; margin: .4rem 0 0; }
p.lead { color: #374151; max-width: 46rem; } code { font-size: .9em; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin-bottom: 1.1rem; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { padding: .4rem .7rem; text-align: right; border-bottom: 1px solid #e5e7eb; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { color: #4b5563; font-weight: 600; }
table.sheet { font-size: .92rem; } table.sheet th:first-child { position: sticky; left: 0; background: #fff; font-weight: 500; }
table.sheet thead tr.groups th { text-align: left; color: #111827; } table.sheet tr.block th { color: #4b5563; padding-top: .9rem; }
table.sheet td.edge, table.sheet th.edge { border-left: 1px solid #e5e7eb; } sup { line-height: 0; color: #b45309; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); gap: 1.2rem; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); gap: 1rem; }
figure { margin: 0; } figure img { width: 100%; height: auto; border: 1px solid #e5e7eb; border-radius: 6px; }
figcaption { font-size: .9rem; color: #374151; margin-top: .35rem; } b.title { display: block; color: #111827; }
details { margin-top: .6rem; } summary { cursor: pointer; overflow-wrap: anywhere; }
pre { overflow-x: auto; font-size: .8rem; background: #f9fafb; padding: .8rem; border-radius: 6px; }
.note { font-size: .9rem; color: #4b5563; max-width: 52rem; } ul.note, ol.note { padding-left: 1.3rem; } .missing { font-weight: 600; }
"""


def document(title: str, body: str) -> str:
    """The whole page; `body` is HTML already."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{html.escape(title)}</h1>
{body}
</body></html>
"""


def sentence(text: str) -> str:
    """Escaped; what stands between backquotes is a command."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def items(texts: list[str], *, numbered: bool = False) -> str:
    """A list of sentences; nothing where there are none."""
    tag = "ol" if numbered else "ul"
    return f'<{tag} class="note">{"".join(f"<li>{sentence(text)}</li>" for text in texts)}</{tag}>' if texts else ""


def picture(one: Picture) -> str:
    """A figure with its caption, the PNG inside."""
    data = base64.b64encode(one.png).decode()
    return (
        f'<figure><img alt="{html.escape(one.title)}" src="data:image/png;base64,{data}">'
        f'<figcaption><b class="title">{html.escape(one.title)}</b>{html.escape(one.meaning)}</figcaption></figure>'
    )


def pictures(found: list[Picture], *, small: bool = False) -> str:
    """As many beside each other as the screen is wide."""
    kind = "grid small" if small else "grid"
    return f'<div class="{kind}">{"".join(map(picture, found))}</div>' if found else ""


def details(summary: str, content: str) -> str:
    """Text that is folded away."""
    return f"<details><summary>{html.escape(summary)}</summary><pre>{html.escape(content)}</pre></details>"


def plain_table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """The table of a few runs."""
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def sheet_table(block: Block) -> str:
    """A block of a suite's sheet; the names of all but the last row axis become lines of their own, which keeps a phone's table narrow."""
    starts = {sum(len(headings) for _, headings in block.groups[:number]) for number in range(len(block.groups))}

    def edge(place: int) -> str:
        return ' class="edge"' if place in starts else ""

    columns = sum(len(headings) for _, headings in block.groups)
    groups = "".join(
        f'<th class="edge" colspan="{len(headings)}">{html.escape(name)}</th>' for name, headings in block.groups
    )
    # The name of a single group would be out of sight in a wide table on a narrow screen.
    title = f"<h4>{html.escape(block.groups[0][0])}</h4>" if len(block.groups) == 1 and block.groups[0][0] else ""
    named = f'<tr class="groups"><th></th>{groups}</tr>' if len(block.groups) > 1 else ""
    flat = [heading for _, headings in block.groups for heading in headings]
    head = "".join(f"<th{edge(place)}>{html.escape(heading)}</th>" for place, heading in enumerate(flat))
    lines: list[str] = []
    before: tuple[str, ...] = ()
    for names, cells in block.rows:
        if names[:-1] != before:
            before = names[:-1]
            lines.append(
                f'<tr class="block"><th>{html.escape(" / ".join(before))}</th><td colspan="{columns}"></td></tr>'
            )
        tds = "".join(f"<td{edge(place)}>{_cell(cell)}</td>" for place, cell in enumerate(cells))
        lines.append(f"<tr><th>{html.escape(names[-1])}</th>{tds}</tr>")
    stub = html.escape(block.stub[-1])
    return (
        f'{title}<div class="scroll"><table class="sheet"><thead>{named}<tr><th>{stub}</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(cell: Text) -> str:
    figure, space, rest = cell.text.partition(" ")
    mark = f"<sup>{cell.mark}</sup>" if cell.mark else ""
    text = f"{html.escape(figure)}{mark}{space}{html.escape(rest)}"
    return f"<b>{text}</b>" if cell.bold else text
