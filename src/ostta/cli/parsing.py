"""What is typed on the command line as one text and means several things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..core.types import Error

# What `--classes` takes.
CLASSES_HELP = (
    "Class names: a,b,c or a file with one per line, which may have descriptions behind it: cat: a photo of a house cat; a kitten. "
    "Lines that begin with # are comments."
)
# What `--device` and `--dtype` take, for the help of every command that runs a model.
DEVICE_HELP = "auto (a GPU where there is one), cpu, cuda, cuda:1 and so on, or mps."
DTYPE_HELP = "The precision of the towers: float32, bfloat16 or float16."
# What keeps the records of a run, or does not.
Records = Annotated[
    bool | None,
    typer.Option(
        "--records/--no-records",
        help="Keep the per-image records, as parquet: they are kept unless --no-records is said; --records also makes a result "
        "anew that has none.",
    ),
]


def parse_device(name: str) -> str:
    """The device called `name`, as a run's spec has it: "auto" is decided here."""
    from ..core.devices import device_named

    device = device_named(name)
    return device.type if name == "auto" else str(name)


def named_code(name: str | None) -> Any:
    """What `name` stands for if it is of the form path/file.py:Name, which runs the file; else the name itself."""
    from ..config.plugins import from_file, names_file

    return from_file(name) if name is not None and names_file(name) else name


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Options from texts such as "lr=1e-3". The values stay text, and are read by the type of the option they set."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise Error(f"--set takes key=value, not {pair!r}.")
        options[key.strip()] = value.strip()
    return options


def parse_values(pairs: Sequence[str]) -> dict[str, list[str]]:
    """As `parse_options`, with every text of an option that is given several times.

    >>> parse_values(["lr=1e-3,3e-3", "losses=re", "losses=re,d"])
    {'lr': ['1e-3,3e-3'], 'losses': ['re', 're,d']}
    """
    values: dict[str, list[str]] = {}
    for pair in pairs:
        for name, value in parse_options([pair]).items():
            values.setdefault(name, []).append(value)
    return values


def parse_only(texts: Sequence[str]) -> dict[str, list[str]]:
    """Entries of axes from texts such as "method=rosita,zero_shot"."""
    only: dict[str, list[str]] = {}
    for text in texts:
        axis, equals, names = text.partition("=")
        if not equals or not names:
            raise Error(f"--only takes axis=entry,entry, not {text!r}.")
        only.setdefault(axis.strip(), []).extend(name.strip() for name in names.split(","))
    return only


def parse_seeds(text: str | None) -> list[int] | None:
    """Whole numbers from a text such as "0,1,2"."""
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise Error(f"--seeds takes whole numbers such as 0,1,2, not {text!r}.") from None


def parse_shard(text: str) -> tuple[int, int]:
    """Number and count from a text such as "1/4"."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise Error(f"--shard takes i/n, such as 1/4, not {text!r}.")
    return int(number), int(count)
