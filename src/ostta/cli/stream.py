"""`ostta stream`: a user's own images through an adapter, one JSON line each, with state that survives."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.types import Error

if TYPE_CHECKING:
    from ..adapter import Adapter

SAVE_EVERY = 200


def stream(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of images, an image, a text file with one path a line, or - for such a list on stdin."
        ),
    ],
    classes: Annotated[str, typer.Option(help="Class names: a,b,c or a file with one a line.")],
    backbone: Annotated[str, typer.Option(help="embedded, a hub id, or a local folder.")] = "embedded",
    method: Annotated[str, typer.Option(help="See `ostta ls methods`.")] = "rosita",
    identifier: Annotated[str, typer.Option(help="See `ostta ls identifiers`.")] = "lda",
    profile: Annotated[str, typer.Option(help="reference or paper.")] = "reference",
    seed: Annotated[int, typer.Option(help="Seed of the augmentation.")] = 0,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, as often as needed.")] = None,
    state: Annotated[
        Path | None, typer.Option(help="State file: resumed where it exists, saved on exit and on SIGTERM.")
    ] = None,
) -> None:
    """Judge images one after the other, adapting on the way; one JSON line for each on stdout.

    Example: ostta stream photos/ --classes "cat,dog,ship" --state cats.ostta
    """
    from ..data.class_names import parse_classes
    from .run import parse_options

    names = list(parse_classes(classes))
    paths = image_paths(source)
    adapter = open_adapter(state, backbone, names, method, identifier, profile, seed, parse_options(set_ or []))
    read = 0
    with Stopper() as stopper, _saved_at_the_end(adapter, state):
        for path in paths:
            with stopper.not_now():
                try:
                    prediction = adapter.step(path)
                except Error as problem:
                    _say({"image": str(path), "error": str(problem)})
                    continue
                read += 1
                _say({"image": str(path), "step": adapter.steps, **json.loads(prediction.to_json())})
                if state is not None and read % SAVE_EVERY == 0:
                    adapter.save(state)
    if not read and not stopper.asked:
        raise Error(f"None of the images in {source} could be read.")


def open_adapter(
    state: Path | None,
    backbone: str,
    classes: list[str],
    method: str,
    identifier: str,
    profile: str,
    seed: int,
    options: dict[str, str],
) -> Adapter:
    """A new adapter, or the one in `state`, which must be what the command line describes."""
    from ..adapter import Adapter, load

    fresh = load(backbone, classes, method=method, identifier=identifier, profile=profile, seed=seed, **options)
    if state is None:
        return fresh
    if not state.exists():
        # Found out now rather than after the last image.
        fresh.save(state)
        return fresh
    kept = Adapter.restore(state, fresh.backbone)
    for name, old, new in (
        ("classes", list(kept.classes), list(fresh.classes)),
        ("method", kept.method_name, fresh.method_name),
        ("identifier", kept.identifier_name, fresh.identifier_name),
        ("options", kept.resolved.values(), fresh.resolved.values()),
        ("seed", kept.seed, fresh.seed),
    ):
        if old != new:
            raise Error(
                f"{state} was made with other {name} ({_short(old, new)}); give the same, or another state file."
            )
    return kept


def image_paths(source: str) -> Iterator[Path]:
    """The images of a folder in the order of their names, or of a list of paths."""
    from ..data.datasets import IMAGE_SUFFIXES

    if source == "-":
        return (Path(line.strip()) for line in sys.stdin if line.strip())
    path = Path(source)
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
        if not found:
            raise Error(f"There are no images in {path} (looked for {', '.join(sorted(IMAGE_SUFFIXES))}).")
        return iter(found)
    if not path.is_file():
        raise Error(f"{source} is neither a folder nor a file.")
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return iter([path])
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (UnicodeDecodeError, OSError):
        raise Error(f"{source} is neither an image nor a text file with one path a line.") from None
    return (Path(line.strip()) for line in lines if line.strip())


def _say(content: dict[str, object]) -> None:
    print(json.dumps(content, ensure_ascii=False), flush=True)


@contextmanager
def _saved_at_the_end(adapter: Adapter, state: Path | None) -> Iterator[None]:
    start = adapter.steps
    try:
        yield
    finally:
        if state is not None and adapter.steps > start:
            adapter.save(state)


class Stopper:
    """Ends the block on SIGTERM or SIGINT: at once while waiting for an image, after the image under way otherwise.

    A second request ends the process as usual.
    """

    def __init__(self) -> None:
        self.asked = False
        self._busy = False
        self._before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    class _Asked(BaseException):
        pass

    @contextmanager
    def not_now(self) -> Iterator[None]:
        """Work that is finished before a stop takes effect."""
        self._busy = True
        yield
        self._busy = False
        if self.asked:
            raise self._Asked

    def __enter__(self) -> Stopper:
        for number in self._before:
            signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> bool:
        self._restore()
        return kind is self._Asked

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()
        if not self._busy:
            raise self._Asked

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _short(old: object, new: object) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        name = next(key for key in old if old[key] != new.get(key))
        return f"{name} {old[name]!r}, now {new.get(name)!r}"
    first, second = str(old), str(new)
    return f"{first[:60]}, now {second[:60]}"
