"""Data sets with one file per image: class folders, and text files that list images and classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from ...core.errors import translate_errors
from ...io import read_regular
from ..class_names import imagenet_names, spoken
from ..images import read_image
from .base import LabelledImages, invalid, of_files, require_folder

IMAGE_SUFFIXES = frozenset(
    [
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".jp2", ".j2k", ".mpo", ".png", ".apng", ".bmp", ".gif"),
        *(".webp", ".avif", ".heic", ".heif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"),
    ]
)


# --- folders ----------------------------------------------------------------------------------------------------------
def read_class_folders(folder: Path, class_folders: Sequence[str], *, inner: str = "") -> LabelledImages:
    """Read the images of `class_folders`, given in label order. `inner` is a subfolder of each class folder."""
    missing = [name for name in class_folders if not (folder / name / inner).is_dir()]
    if missing:
        raise invalid(
            f"'{folder}' has {len(class_folders) - len(missing)} of the {len(class_folders)} class folders: "
            f"the first missing folder is {Path(missing[0], inner)}."
        )
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(class_folders):
        place = folder / name / inner
        inside = [place / file for file in image_names(place)]
        if not inside:
            raise invalid(f"The class folder '{place}' has no images ({' '.join(sorted(IMAGE_SUFFIXES))}).")
        files.extend(inside)
        labels.extend([label] * len(inside))
    return of_files(files, labels)


def read_own_folder(folder: Path, classes: tuple[str, ...] | None, named: bool) -> LabelledImages:
    """Read a user folder.

    `classes` selects and orders the classes. WordNet ids are replaced by ImageNet class names. If `named` is False, the
    folder may contain images directly.
    """
    require_folder(folder)
    inside = sorted(item for item in folder.iterdir() if item.is_dir() and not item.name.startswith("."))
    loose = [folder / name for name in image_names(folder)]
    if not inside and loose and not named:
        return LabelledImages(np.zeros(len(loose), np.int64), lambda i: read_image(loose[i]), (folder.name,), loose)
    if not inside:
        raise invalid(
            f"'{folder}' has no folders: it needs one folder per class that contains the images of the class."
        )
    by_class = {imagenet_names().get(item.name, spoken(item.name)): item.name for item in inside}
    if len(by_class) < len(inside):
        raise invalid(f"Two class folders in '{folder}' differ only in underscores and spaces: rename one.")
    names = classes or tuple(by_class)
    missing = [name for name in names if spoken(name) not in by_class]
    if missing:
        raise invalid(f"'{folder}' has no folder for the class '{missing[0]}': it has {', '.join(by_class)}.")
    images = read_class_folders(folder, [by_class[spoken(name)] for name in names])
    return LabelledImages(images.labels, images.read, names, images.files)


def image_names(folder: Path) -> list[str]:
    """Return the sorted names of the image files directly in `folder`."""
    # Directory entries include the file type; a separate call for each file would take seconds for ImageNet.
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES
            and not entry.name.startswith(".")
            and entry.is_file()
        )


# --- lists ------------------------------------------------------------------------------------------------------------
def read_list(path: Path, class_folders: Sequence[str]) -> LabelledImages:
    """Read the images of a DomainNet or VisDA list, with one path and label per line.

    The class folder in each path must match the label, because a missing class name would shift all later labels.
    """
    names: list[PurePosixPath] = []
    labels: list[int] = []
    for number, line in _lines(path):
        name, _, label = line.rpartition(" ")
        if not name or not label.isdecimal() or len(PurePosixPath(name).parts) < 2:
            raise invalid(f"Line {number} of '{path}' is {line!r}: it must be a class folder, an image and a label.")
        folder = PurePosixPath(name).parts[-2]
        expected = class_folders[int(label)] if int(label) < len(class_folders) else None
        if folder != expected:
            what = f"is '{expected}'" if expected else f"does not exist, there are {len(class_folders)} classes"
            raise invalid(
                f"Line {number} of '{path}' gives the label {label} to an image of '{folder}', but {label} {what}."
            )
        names.append(PurePosixPath(name))
        labels.append(int(label))
    if not names:
        raise invalid(f"'{path}' lists no images.")
    # Paths are relative to the folder of the list, or to its parent.
    bases = [base for base in (path.parent, path.parent.parent) if (base / names[0]).is_file()]
    if not bases:
        raise invalid(f"The images of '{path}' are missing: the first should be '{path.parent / names[0]}'.")
    return of_files([bases[0] / name for name in names], labels)


def read_annotations(path: Path, class_folders: Sequence[str]) -> LabelledImages:
    """Read val_annotations.txt of Tiny-ImageNet: an image, WordNet id and box per line. Other classes are skipped."""
    numbers = {wnid: label for label, wnid in enumerate(class_folders)}
    files: list[Path] = []
    labels: list[int] = []
    for number, line in _lines(path):
        cells = line.split("\t")
        if len(cells) < 2:
            raise invalid(
                f"Line {number} of '{path}' is {line!r}: it must be an image and a WordNet id, separated by a tab."
            )
        if cells[1] in numbers:
            files.append(path.parent / "images" / cells[0])
            labels.append(numbers[cells[1]])
    if not files:
        raise invalid(f"'{path}' lists no image of the {len(class_folders)} classes.")
    return of_files(files, labels)


def _lines(path: Path) -> list[tuple[int, str]]:
    content = read_regular(path, "list of images")
    with translate_errors("file-not-text", f"The list of images '{path}' is not UTF-8 text.", ValueError):
        text = content.decode("utf-8")
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
