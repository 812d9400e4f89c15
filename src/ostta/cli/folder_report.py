"""What `ostta data check folder:PATH` prints."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from ..io import readable
from .data_check import USUAL_LIMIT, FileProblems, FolderCheck, check_folder
from .run_progress import progress_line

# Lines of classes and names of files that are printed; the rest is counted.
_CLASSES, _FILES = 20, 10


def report_folder(folder: Path, limit: int | None) -> None:
    """Look the folder over and say what was found; the exit code is 1 where it cannot be used as it is."""
    with progress_line("images") as watch:
        found = check_folder(
            folder, USUAL_LIMIT if limit is None else limit, lambda done, total: watch(done, total, None)
        )
    for line in lines(found):
        print(readable(line))
    if found.problems:
        raise typer.Exit(1)


def lines(found: FolderCheck) -> list[str]:
    """The report, line by line."""
    written = [f"{'folder':<10} {found.folder}", f"{'images':<10} {found.images:,}"]
    if found.checked < found.images:
        written.append(
            f"{'looked at':<10} {found.checked:,}, drawn evenly over the classes; --limit {found.images} looks at all"
        )
    written.append(
        f"{'classes':<10} {len(found.classes):,}" if found.classes else f"{'classes':<10} none: images alone"
    )
    written += [f"{each.images:>10,} {each.name}" for each in found.classes[:_CLASSES]]
    if len(found.classes) > _CLASSES:
        written.append(f"{'':>10} and {len(found.classes) - _CLASSES:,} more classes")
    written += _files("cannot be read", found.unreadable) + _files("over the limit", found.too_large)
    for group in found.duplicates[:_FILES]:
        written.append(f"same       {' = '.join(str(path.relative_to(found.folder)) for path in group[:4])}")
    written += [f"Warning: {warning}" for warning in found.warnings]
    written += [f"Problem: {problem}" for problem in found.problems]
    return [*written, f"{'next':<10} {_next(found)}"]


def _files(heading: str, found: FileProblems) -> list[str]:
    # Each sentence names its file already.
    written = [f"{heading}: {sentence}" for _, sentence in found.files[:_FILES]]
    return written + ([f"{heading}: {found.count - _FILES:,} more"] if found.count > _FILES else [])


def _next(found: FolderCheck) -> str:
    name = shlex.quote(f"folder:{found.folder}")
    if found.problems:
        return f"mend these, and look again: ostta data check {name}"
    if not found.classes:
        return f"ostta stream {shlex.quote(str(found.folder))} --classes a,b,c   or, as unknown images: ostta run --undesired {name}"
    # The model that ships knows the classes of CIFAR only.
    run = f"ostta run --backbone openai/clip-vit-base-patch16 --desired {name} --undesired sample:mnist"
    return run if found.images <= 1_000 else f"{run} --limit 500"
