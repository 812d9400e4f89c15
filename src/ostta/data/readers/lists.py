"""Text files that list images: "folder/image.jpg 3" a line (DomainNet, VisDA), and Tiny-ImageNet's annotations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from ...core.types import Error
from ...io import read_regular
from .labelled import Images, of_files


def read_list(path: Path, class_folders: Sequence[str]) -> Images:
    """The images that `path` lists, each with its label; the class folder in each path must be the one of that label.

    A list of names that has lost an entry shifts every label behind it by one, and nothing else would tell.
    """
    names: list[PurePosixPath] = []
    labels: list[int] = []
    for number, line in _lines(path):
        name, _, label = line.rpartition(" ")
        if not name or not label.isdecimal() or len(PurePosixPath(name).parts) < 2:
            raise Error(f"Line {number} of '{path}' is {line!r}: it must be a class folder, an image and a label.")
        folder = PurePosixPath(name).parts[-2]
        known = class_folders[int(label)] if int(label) < len(class_folders) else None
        if folder != known:
            what = f"is '{known}'" if known is not None else f"does not exist, there are {len(class_folders)} classes"
            raise Error(
                f"Line {number} of '{path}' gives the label {label} to an image of '{folder}', but {label} {what}."
            )
        names.append(PurePosixPath(name))
        labels.append(int(label))
    if not names:
        raise Error(f"'{path}' lists no images.")
    base = _base(path, names[0])
    return of_files([base / name for name in names], labels)


def read_annotations(path: Path, class_folders: Sequence[str]) -> Images:
    """Tiny-ImageNet's val_annotations.txt: image, WordNet id and a box a line; classes not asked for are left out."""
    numbers = {wnid: label for label, wnid in enumerate(class_folders)}
    files: list[Path] = []
    labels: list[int] = []
    for number, line in _lines(path):
        cells = line.split("\t")
        if len(cells) < 2:
            raise Error(
                f"Line {number} of '{path}' is {line!r}: it must be an image and a WordNet id, with a tab between."
            )
        if cells[1] in numbers:
            files.append(path.parent / "images" / cells[0])
            labels.append(numbers[cells[1]])
    if not files:
        raise Error(f"'{path}' lists no image of the {len(class_folders)} classes.")
    return of_files(files, labels)


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        text = read_regular(path, "list of images").decode("utf-8")
    except UnicodeDecodeError as problem:
        raise Error(f"The list '{path}' cannot be read: {problem}.") from problem
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _base(path: Path, first: PurePosixPath) -> Path:
    """The folder that the listed paths start from: that of the list, or the one above."""
    for folder in (path.parent, path.parent.parent):
        if (folder / first).is_file():
            return folder
    raise Error(f"'{path}' is there, but its images are not: the first should be '{path.parent / first}'.")
