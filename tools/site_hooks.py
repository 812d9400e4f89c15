"""What mkdocs does beside rendering: pages made from the code itself, and links out of docs/ as names of files.

A page has all commands where it says `<!-- command line -->`, and all options where it says `<!-- options -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

# A link to a file of the repository that is no page: the built site does not have it.
_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    for mark, made in (("<!-- command line -->", command_line), ("<!-- options -->", options)):
        if mark in markdown:
            markdown = markdown.replace(mark, made())
    docs = Path(config["docs_dir"])
    return without_outside_links(markdown, docs / page.file.src_uri, docs)


def without_outside_links(markdown: str, page: Path, docs: Path) -> str:
    """Links that lead out of `docs` as words, with the file's name in the repository."""

    def named(link: re.Match[str]) -> str:
        target = (page.parent / link[2]).resolve()
        if target.is_relative_to(docs.resolve()):
            return link[0]
        return f"{link[1]} (`{target.relative_to(docs.resolve().parent).as_posix()}` in the repository)"

    return _OUTSIDE.sub(named, markdown)


def command_line() -> str:
    """Every command with its arguments and options, as Markdown."""
    from ostta.cli.app import app

    return "\n\n".join(_described(get_command(app), "ostta"))


def options() -> str:
    """The options of everything that has some, as Markdown."""
    from ostta.config.declare import UNCHANGED, list_options
    from ostta.config.resolve import list_options_classes

    parts = []
    for owner, declared in list_options_classes().items():
        listed = list_options(declared)
        if not listed:
            continue
        rows = [
            (
                f"`{one.name}`", one.takes, f"`{one.text(one.default)}`",
                "" if one.paper is UNCHANGED else f"`{one.text(one.paper)}`", one.number or "", one.about,
            )
            for one in listed
        ]  # fmt: skip
        head = ["| option | takes | default | paper | no. | what it means |", "|---|---|---|---|---|---|"]
        lines = ["| " + " | ".join(_cell(text) for text in row) + " |" for row in rows]
        parts += [f"## {owner}", "\n".join([*head, *lines])]
    return "\n\n".join(parts)


def _described(command: Any, path: str) -> Iterator[str]:
    context = command.context_class(command, info_name=path)
    yield f"## {path}"
    yield _prose(command.help or "")
    yield f"```\n{' '.join([path, *command.collect_usage_pieces(context)])}\n```"
    parameters = [each for each in command.params if not getattr(each, "hidden", False) and each.name != "help"]
    if parameters:
        yield "\n".join(["| option | what it does |", "|---|---|", *(_row(each, context) for each in parameters)])
    for name, inner in getattr(command, "commands", {}).items():
        yield from _described(inner, f"{path} {name}")


def _prose(text: str) -> str:
    """Paragraphs as they are; what a help text indents or marks with \b stays as it is set."""
    parts = []
    for paragraph in text.replace("\r", "").split("\n\n"):
        if paragraph.startswith("\b"):
            parts.append("```\n" + paragraph.removeprefix("\b\n") + "\n```")
        else:
            said, example, call = paragraph.replace("<", "&lt;").partition("Example: ")
            parts.append(f"{said}{example}`{' '.join(call.split())}`" if example else said)
    return "\n\n".join(parts)


def _row(parameter: Any, context: Any) -> str:
    names, about = parameter.get_help_record(context) or (parameter.name, "")
    return f"| `{_line(names)}` | {_cell(about)} |"


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _cell(text: str) -> str:
    return _line(text).replace("<", "&lt;")
