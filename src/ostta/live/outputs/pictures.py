"""Pictures of a stream: files sorted by answer, pictures with the answer below, and examples for a page."""

from __future__ import annotations

import io
import os
import random
import shutil
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from PIL import Image, ImageDraw, ImageFont

from ...io import read_regular
from ..digest import is_undecided
from ..journal import Example, Examples, Row
from .names import UNDECIDED, UNKNOWN, folder_names, numbered
from .record import MOST_DRAWN, PictureRecord

Sort = Literal["copy", "link"]
# Largest side and smallest width of a drawn picture in pixels.
LARGEST, NARROWEST = 1280, 320
# Maximum number of examples per answer, maximum number of classes with examples, and their side in pixels.
EXAMPLES, MOST_CLASSES, THUMBNAIL = 8, 200, 96
# Keys of example pictures without a class. No class has an empty or blank name.
REJECTED, UNDECIDED_EXAMPLES = "", " "


class SortedFiles:
    """`sorted/`: each image in the folder of its answer, as a copy or a link; video frames as JPEG files.

    Undecided images, whose answers are provisional, are in the folder `undecided`.
    """

    def __init__(self, folder: Path, classes: tuple[str, ...], how: Sort, record: PictureRecord) -> None:
        self._folder, self._how, self._record = folder, how, record
        self._names = folder_names(classes)

    def add(self, row: Row, picture: Image.Image | None) -> None:
        """Add one image to its folder."""
        answer: str = row.content.get("label") or ""
        # A damaged journal may name a class that the state does not have.
        place = self._folder / (UNDECIDED if is_undecided(row.content) else self._names.get(answer, UNKNOWN))
        if row.path is None:
            if picture is not None:
                self._record.add(row.number, place / numbered(row.number, row.content["image"], ".jpg"), _jpeg(picture))
            return
        target = place / numbered(row.number, os.fspath(row.path))
        if self._how == "link":
            self._record.add(row.number, target, row.path.absolute())
        elif row.path.exists():  # otherwise the image was deleted in the meantime
            self._record.add(row.number, target, read_regular(row.path, "image file"))
            with suppress(OSError):
                shutil.copystat(row.path, target)


class DrawnPictures:
    """`drawn/`: the last ten thousand images with their answers below, at a limited size."""

    def __init__(self, folder: Path, record: PictureRecord) -> None:
        self._folder, self._record = folder, record

    def add(self, row: Row, picture: Image.Image) -> None:
        """Draw one picture."""
        self._record.add(row.number, self._folder / f"{row.number:06d}.jpg", _jpeg(drawn(picture, row.content)))
        self._record.remove(self._folder / f"{row.number - MOST_DRAWN:06d}.jpg")


class ExamplePictures:
    """A few small pictures of each answer, sampled at random from all images, in bounded memory.

    Which picture is replaced depends only on the number of images so far, so that a resumed stream selects the same
    pictures.
    """

    def __init__(self, kept: Examples, counts: Mapping[str, int]) -> None:
        self.kept, self._new = dict(kept), Examples()
        self._counts = Counter(counts)

    def choose_place(self, content: Mapping[str, Any]) -> int | None:
        """Return the position for the picture of a row, or None if it is not selected. Call this once per row."""
        answer = _answer(content)
        if answer not in self._counts and len(self._counts) >= MOST_CLASSES:
            return None
        count = self._counts[answer]
        self._counts[answer] += 1
        place = count if count < EXAMPLES else random.Random(f"{answer} {count}").randrange(count + 1)
        return place if place < EXAMPLES else None

    def add(self, row: Row, picture: Image.Image, place: int) -> None:
        """Store a thumbnail."""
        small = picture.copy()
        small.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=82)
        key = (_answer(row.content), place)
        self.kept[key] = self._new[key] = Example(row.number, _title(row.content), buffer.getvalue())

    def new(self) -> Examples:
        """Return the pictures that were added since the last call."""
        new, self._new = self._new, Examples()
        return new

    def of(self, answer: str) -> list[Example]:
        """Return the pictures of a class, of REJECTED or of UNDECIDED_EXAMPLES, ordered by row number."""
        return sorted(example for (name, _), example in self.kept.items() if name == answer)


def drawn(picture: Image.Image, content: Mapping[str, Any]) -> Image.Image:
    """Return the picture with a bar below it that shows the answer.

    >>> drawn(image, {"image": "a.png", "label": "cat", "known": True, "score": 0.4, "threshold": 0.3}).size
    (320, 376)
    """
    shown = picture.convert("RGB")
    shown.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    if shown.width < NARROWEST:
        height = min(LARGEST, round(shown.height * NARROWEST / shown.width))
        shown = shown.resize((NARROWEST, max(1, height)), Image.Resampling.NEAREST)
    size = max(16, round(shown.width / 28))
    bar = round(3.5 * size)
    whole = Image.new("RGB", (shown.width, shown.height + bar), (17, 24, 39))
    whole.paste(shown, (0, 0))
    pen = ImageDraw.Draw(whole)
    colour = (124, 176, 255) if content.get("known") else (245, 176, 65)
    pen.rectangle((0, shown.height, max(4, size // 4), shown.height + bar), fill=colour)
    first, second = _words(content)
    for number, (text, scale) in enumerate(((first, 1.0), (second, 0.72))):
        font = ImageFont.load_default(round(size * scale))
        room = whole.width - 2 * size
        place = (size, shown.height + round(size * (0.4, 1.95)[number]))
        pen.text(place, _fitting(text, font, room), fill=(243, 244, 246) if number == 0 else (168, 176, 189), font=font)
    return whole


def _words(content: Mapping[str, Any]) -> tuple[str, str]:
    label, threshold = content.get("label"), content.get("threshold")
    first = " ".join(label.split()) if label else f"unknown (best: {content.get('best') or 'none'})"
    probability, value = content.get("probability"), _value(content)
    if probability is not None:
        first = f"{first}, {probability:.2f}"
    elif value and threshold is not None:
        value += f", threshold {threshold:.2f}"
    second = [value] if value else []
    if is_undecided(content):
        second.append("undecided")
    return first, " · ".join([*second, str(content["image"])])


def _title(content: Mapping[str, Any]) -> str:
    return ", ".join(filter(None, (str(content["image"])[-200:], _value(content))))


def _value(content: Mapping[str, Any]) -> str:
    """Return the probability as text, or the score if there is none."""
    probability, score = content.get("probability"), content.get("score")
    if probability is not None:
        return f"probability that it is known {probability:.2f}"
    return "" if score is None else f"score {score:.2f}"


def _fitting(text: str, font: Any, room: int) -> str:
    text = text[:300]
    if font.getlength(text) <= room:
        return text
    while text and font.getlength(f"{text}…") > room:
        text = text[:-1]
    return f"{text}…"


def _answer(content: Mapping[str, Any]) -> str:
    return UNDECIDED_EXAMPLES if is_undecided(content) else content.get("label") or REJECTED


def _jpeg(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=88)
    return buffer.getvalue()
