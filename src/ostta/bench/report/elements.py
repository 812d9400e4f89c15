"""The pieces of the pages about runs and suites: pictures and tables, in the design of all pages."""

from __future__ import annotations

import base64
import html

from ... import pages
from ...pages import details, items, sentence
from ..tables.layout import Block, Text
from .run_pictures import Picture

__all__ = ["details", "document", "items", "picture", "pictures", "plain_table", "sentence", "sheet_table"]

# What the pages of runs and suites have beyond the common design.
STYLE = """
table.sheet { font-size: .92rem; } table.sheet th:first-child { position: sticky; left: 0; background: var(--page); font-weight: 500; }
table.sheet thead tr.groups th { text-align: left; color: var(--text); } table.sheet tr.block th { color: var(--faint); padding-top: .9rem; }
table.sheet td.edge, table.sheet th.edge { border-left: 1px solid var(--line); } sup { line-height: 0; color: var(--unknown); }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); gap: 1.2rem; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); gap: 1rem; }
"""


def document(title: str, body: str) -> str:
    """The whole page; `body` is HTML already."""
    return pages.document(title, body, STYLE)


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
