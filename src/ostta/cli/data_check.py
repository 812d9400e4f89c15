"""`ostta data check`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.types import Error
from ..io import readable
from .options import Corruption, Data, Severity

if TYPE_CHECKING:
    from ..data_tools.check import DatasetCheck, FileProblems, FolderCheck

# Number of classes and of files that are printed.
_CLASSES, _FILES = 20, 10


def check(
    name: Annotated[str, typer.Argument(help="A name of `ostta ls datasets`, such as mnist:train or folder:PATH.")],
    data: Data = None,
    corruption: Corruption = "snow",
    severity: Severity = 5,
    limit: Annotated[
        int | None, typer.Option(help="For folder:PATH, the maximum number of images to decode.  [default: 10,000]")
    ] = None,
) -> None:
    """Check that a data set can be used.

    The command prints the number of images, the classes and the origin, and decodes one image. For folder:PATH, it
    decodes all images and reports unreadable, oversized and duplicate ones and problems with the classes. The exit
    code is 1 if the data set cannot be used.

    Example: ostta data check visda --data DATA

    Example: ostta data check folder:pets
    """
    from ..data.names import parse_name
    from ..data_tools.check import USUAL_LIMIT, check_dataset, check_folder
    from .progress import progress_line

    parsed = parse_name(name)
    if parsed.kind == "folder" and not parsed.corrupted:
        with progress_line("images") as watch:
            folder = check_folder(
                Path(parsed.base).expanduser(),
                USUAL_LIMIT if limit is None else limit,
                lambda done, total: watch(done, total, None),
            )
        for line in folder_lines(folder):
            print(readable(line))
        if folder.problems:
            raise typer.Exit(1)
        return
    if limit is not None:
        raise Error("--limit applies to folder:PATH only: of other sets one image is decoded.", code="option-invalid")
    for line in dataset_lines(check_dataset(name, data, corruption=corruption, severity=severity)):
        print(line)


def dataset_lines(found: DatasetCheck) -> list[str]:
    """Return the report about a data set, line by line."""
    dataset, expected = found.dataset, found.expected
    official = ""
    if expected is not None:
        paper = "" if expected.paper is None else f"; in the paper {expected.paper:,}"
        official = f" (official {expected.official:,}{paper})"
    more = ", ..." if len(dataset.classes) > 5 else ""
    rows = {
        "data set": dataset.name,
        "images": f"{len(dataset):,}{official}",
        "classes": f"{len(dataset.classes):,}: {', '.join(dataset.classes[:5])}{more}",
        "origin": dataset.origin,
        "layout": dataset.layout,
        "first": f"{found.size[0]} x {found.size[1]} pixels, class {dataset.classes[dataset.labels[0]]}",
        "note": dataset.note,
        "paper": "" if expected is None else expected.remark,
    }
    lines = [f"{heading:<10} {cell}" for heading, cell in rows.items() if cell]
    return lines + [f"Warning: {warning}" for warning in found.warnings]


def folder_lines(found: FolderCheck) -> list[str]:
    """Return the report about a folder, line by line."""
    lines = [f"{'folder':<10} {found.folder}", f"{'images':<10} {found.images:,}"]
    if found.checked < found.images:
        lines.append(
            f"{'checked':<10} {found.checked:,}, drawn evenly from the classes; --limit {found.images} checks all"
        )
    lines.append(f"{'classes':<10} {f'{len(found.classes):,}' if found.classes else 'none, only images'}")
    lines += [f"{each.images:>10,} {each.name}" for each in found.classes[:_CLASSES]]
    if len(found.classes) > _CLASSES:
        lines.append(f"{'':>10} and {len(found.classes) - _CLASSES:,} more classes")
    lines += _file_lines("unreadable", found.unreadable) + _file_lines("too large", found.too_large)
    for group in found.duplicates[:_FILES]:
        lines.append(f"{'same':<10} {' = '.join(str(path.relative_to(found.folder)) for path in group[:4])}")
    lines += [f"Warning: {warning}" for warning in found.warnings]
    lines += [f"Problem: {problem}" for problem in found.problems]
    return [*lines, f"{'next':<10} {_next_command(found)}"]


def _file_lines(heading: str, found: FileProblems) -> list[str]:
    more = [f"{heading}: {found.count - _FILES:,} more files"] if found.count > _FILES else []
    return [f"{heading}: {message}" for _, message in found.files[:_FILES]] + more


def _next_command(found: FolderCheck) -> str:
    from ..backbones.choice import CLIP, suggest

    name = shlex.quote(f"folder:{found.folder}")
    if found.problems:
        return f"fix the problems, then repeat: ostta data check {name}"
    if not found.classes:
        stream = f"ostta stream {shlex.quote(str(found.folder))} --classes a,b,c"
        return f"{stream}   or, as unknown images: ostta run --undesired {name}"
    try:
        backbone = suggest([each.name for each in found.classes]).backbone
    except Error:
        backbone = CLIP
    limit = "" if found.images <= 1_000 else " --limit 500"
    return f"ostta run --backbone {backbone} --desired {name} --undesired sample:mnist{limit}"
