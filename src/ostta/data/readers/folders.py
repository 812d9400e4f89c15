"""A folder with one folder of images per class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...core.types import Error
from ..class_lists import imagenet_names
from ..class_names import spoken
from ..images import read_image
from .labelled import Images, of_files

IMAGE_SUFFIXES = frozenset(
    [
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".jp2",
        ".j2k",
        ".mpo",
        ".png",
        ".apng",
        ".bmp",
        ".gif",
        ".webp",
        ".avif",
        ".heic",
        ".heif",
        ".tif",
        ".tiff",
        ".ppm",
        ".pgm",
        ".pbm",
        ".pnm",
    ]
)


def read_class_folders(folder: Path, class_folders: Sequence[str], *, inner: str = "") -> Images:
    """The images of each of `class_folders`, which are in label order; `inner` is a folder inside each that holds them."""
    missing = [name for name in class_folders if not (folder / name / inner).is_dir()]
    if missing:
        raise Error(
            f"'{folder}' has {len(class_folders) - len(missing)} of the {len(class_folders)} class folders: "
            f"the first that is not there is {Path(missing[0], inner)}."
        )
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(class_folders):
        inside = _images_of_class(folder / name / inner)
        files.extend(inside)
        labels.extend([label] * len(inside))
    return of_files(files, labels)


def read_own_folder(folder: Path, given: tuple[str, ...] | None, named: bool) -> Images:
    """A person's own folder. `given` chooses and orders the classes; folders named by WordNet ids get ImageNet's names.

    Without `named` the images may lie in the folder itself.
    """
    if not folder.is_dir():
        raise Error(f"There is no folder '{folder}'.")
    inside = sorted(item for item in folder.iterdir() if item.is_dir() and not item.name.startswith("."))
    loose = [folder / name for name in image_names(folder)]
    if not inside and loose and not named:
        return Images(np.zeros(len(loose), np.int64), lambda i: read_image(loose[i]), (folder.name,), loose)
    if not inside:
        raise Error(f"'{folder}' has no folders in it: it needs one per class, with that class's images inside.")
    by_class = {imagenet_names().get(item.name, spoken(item.name)): item.name for item in inside}
    if len(by_class) < len(inside):
        raise Error(f"Two class folders in '{folder}' differ only in underscores and spaces: rename one.")
    classes = given or tuple(by_class)
    for name in classes:
        if spoken(name) not in by_class:
            raise Error(f"'{folder}' has no folder for the class '{name}': it has {', '.join(by_class)}.")
    images = read_class_folders(folder, [by_class[spoken(name)] for name in classes])
    return Images(images.labels, images.read, classes, images.files)


def _images_of_class(folder: Path) -> list[Path]:
    files = [folder / name for name in image_names(folder)]
    if not files:
        raise Error(f"The class folder '{folder}' has no images ({' '.join(sorted(IMAGE_SUFFIXES))}).")
    return files


def image_names(folder: Path) -> list[str]:
    """The names of the image files in `folder` itself, in order."""
    # The listing of the folder knows what is a file; asking for each would take seconds for ImageNet.
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES
            and not entry.name.startswith(".")
            and entry.is_file()
        )
