"""Tables in Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from .collected import is_folder
from .data_export import csv_text, figure_rows, figures_json, run_rows
from .figures import SuiteFigures
from .tables import WIDTH, Block, Sheet, TableCell, compact_sheet, sheet

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": r"\textbar{}",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "±": r"$\pm$", "Δ": r"$\Delta$", "–": "--",
}  # fmt: skip


def markdown(figures: SuiteFigures) -> str:
    """Return all tables with their footnotes in Markdown."""
    # Half of the usual width, because each heading contains the name of its group.
    tables = sheet(figures, WIDTH // 2)
    parts = [f"## {_md(tables.title)}", *(_markdown_table(block) for block in tables.blocks)]
    if tables.doubts:
        parts.append("\n".join(f"[{number}] {_md(doubt)}." for number, doubt in enumerate(tables.doubts, 1)))
    # Backquotes in footnotes are Markdown.
    parts += [_md(note).replace("\\`", "`") for note in tables.footnotes]
    return "\n\n".join(parts) + "\n"


def latex(figures: SuiteFigures) -> str:
    """Return all tables for a document with \\usepackage{booktabs}, with labels such as tab:paper-table-cifar-1."""
    return _latex(figures, sheet(figures))


def _latex(figures: SuiteFigures, tables: Sheet) -> str:
    name = figures.suite.name
    short = Path(name).stem if figures.suite.folder or is_folder(name) else name
    label = re.sub(r"[^a-z0-9]+", "-", short.lower()).strip("-")
    parts = ["% needs \\usepackage{booktabs}"]
    parts += [_latex_table(tables, block, f"tab:{label}-{number}") for number, block in enumerate(tables.blocks, 1)]
    notes = [f"$^{{{number}}}$ {_tex(doubt)}." for number, doubt in enumerate(tables.doubts, 1)]
    notes += map(_tex_sentence, tables.footnotes)
    if notes:
        # The group limits the font size to the notes.
        lines = "\n".join(f"\\noindent {note}\\par" for note in notes)
        parts.append(f"\\begingroup\n\\footnotesize\n{lines}\n\\endgroup")
    return "\n\n".join(parts) + "\n"


FORMATS: dict[str, Callable[[SuiteFigures], str]] = {
    "md": markdown,
    "latex": latex,
    "latex-compact": lambda figures: _latex(figures, compact_sheet(figures)),
    "csv": lambda figures: csv_text(run_rows(figures)),
    "figures": lambda figures: csv_text(figure_rows(figures)),
    "json": figures_json,
}


def _markdown_table(block: Block) -> str:
    """Return a table with padded columns, so that it can be read in a terminal."""
    many = len(block.groups) > 1
    headings = [
        f"{name}: {heading}" if name and many else heading for name, headings in block.groups for heading in headings
    ]
    lines = [[_md(name) for name in (*block.stub, *headings)]]
    lines += [[*map(_md, names), *map(_markdown_cell, cells)] for names, cells in block.rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    left = len(block.stub)

    def padded(line: list[str]) -> str:
        texts = [
            text.ljust(width) if place < left else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        return f"| {' | '.join(texts)} |"

    rule = "|".join(
        "-" * (width + 2) if place < left else "-" * (width + 1) + ":" for place, width in enumerate(widths)
    )
    title = " – ".join(text for text in (block.title, "" if many else block.groups[0][0]) if text)
    table = "\n".join([padded(lines[0]), f"|{rule}|", *map(padded, lines[1:])])
    return f"### {_md(title)}\n\n{table}" if title else table


def _markdown_cell(cell: TableCell) -> str:
    mark = f"[{cell.mark}]" if cell.mark else ""
    # The star is not Markdown.
    text = " ".join(filter(None, (cell.figure, mark, cell.details))) + r"\*" * cell.star
    return f"**{text}**" if cell.bold else text


def _md(text: str) -> str:
    return re.sub(r"([\\|*<>`])", r"\\\1", text).replace("\n", " ")


def _latex_table(tables: Sheet, block: Block, label: str) -> str:
    stubs, spans, rules = len(block.stub), [], []
    at = stubs + 1
    for name, headings in block.groups:
        spans.append(f"\\multicolumn{{{len(headings)}}}{{c}}{{{_tex(name)}}}")
        rules.append(f"\\cmidrule(lr){{{at}-{at + len(headings) - 1}}}")
        at += len(headings)
    named = any(name for name, _ in block.groups)
    flat = [*block.stub, *(heading for _, group in block.groups for heading in group)]
    body, before = [], None
    for names, cells in block.rows:
        if before not in (None, names[:-1]):
            body.append("\\addlinespace")
        before = names[:-1]
        body.append(_latex_line([*map(_tex, names), *map(_latex_cell, cells)]))
    # The streams distinguish several tables of one kind.
    streams = "; ".join(name for name, _ in block.groups if name)
    caption = ". ".join(part for part in (tables.title, block.title, streams) if part)
    return "\n".join(
        [
            "\\begin{table}[t]\n\\centering",
            f"\\caption{{{_tex(caption)}}}\n\\label{{{label}}}",
            f"\\begin{{tabular}}{{{'l' * stubs}{'r' * (at - stubs - 1)}}}\n\\toprule",
            *([_latex_line([""] * stubs + spans), " ".join(rules)] if named else []),
            _latex_line([_tex(heading) for heading in flat]) + "\n\\midrule",
            *body,
            "\\bottomrule\n\\end{tabular}\n\\end{table}",
        ]
    )


def _latex_line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: TableCell) -> str:
    mark = f"$^{{{cell.mark}}}$" if cell.mark else ""
    text = " ".join(filter(None, (f"{_tex(cell.figure)}{mark}", _tex(cell.details)))) + "*" * cell.star
    return f"\\textbf{{{text}}}" if cell.bold else text


def _tex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _tex_sentence(text: str) -> str:
    """Return a sentence in LaTeX; text between backquotes is a command."""
    return re.sub(r"`([^`]*)`", r"\\texttt{\1}", _tex(text))
