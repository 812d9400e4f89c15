"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.types import Error

if TYPE_CHECKING:
    from ..bench.figures import SuiteFigures

CLASSES_HELP = (
    "Class names: a,b,c or a file with one per line. A line may have descriptions: cat: a photo of a house cat; a kitten. Lines that "
    "begin with # are comments."
)
DEVICE_HELP = "auto (a GPU if there is one), cpu, cuda, cuda:1 and so on, or mps."
DTYPE_HELP = "Precision of the towers: float32, bfloat16 or float16."
DATA_HELP = "Folder of the data sets; default: the variable OSTTA_DATA."

Data = Annotated[Path | None, typer.Option("--data", help=DATA_HELP)]
Out = Annotated[Path, typer.Option(help="Folder of the result files.")]
OUT = Path("ostta-runs")
Device = Annotated[str, typer.Option(help=DEVICE_HELP)]
Dtype = Annotated[str, typer.Option(help=DTYPE_HELP)]
Classes = Annotated[str | None, typer.Option(help=CLASSES_HELP)]
Corruption = Annotated[str, typer.Option(help="Applied to every data set whose name ends in c.")]
Severity = Annotated[int, typer.Option(help="1 to 5.")]
Template = Annotated[
    list[str] | None, typer.Option(help='A prompt template such as "a photo of a {}."; several are averaged.')
]
Records = Annotated[
    bool | None,
    typer.Option(
        "--records/--no-records",
        help="Keep the per-image records, as parquet. They are kept by default; --records also repeats runs whose results have none.",
    ),
]
Log = Annotated[
    str | None, typer.Option(help="Write curves during runs: tensorboard:FOLDER, with a folder for each run.")
]
# Of commands that show the results of a suite or a folder.
SuiteOrFolder = Annotated[
    str, typer.Argument(help="A suite (see `ostta bench ls`), a TOML file of your own, or a folder of results.")
]
Fpr95 = Annotated[str, typer.Option(help="How FPR95 is counted: interpolated (published), strict or undesired.")]
Seeds = Annotated[str | None, typer.Option(help="0,1,2 in place of the suite's seeds.")]
Limit = Annotated[int | None, typer.Option(help="The limit that the runs had.")]
Only = Annotated[
    list[str] | None, typer.Option(help="axis=entry,entry; may be repeated: --only method=rosita,zero_shot.")
]
DeviceOfRuns = Annotated[str | None, typer.Option(help="The device of the runs: cpu, cuda or mps.")]
DtypeOfRuns = Annotated[str | None, typer.Option(help=f"The precision of the runs. {DTYPE_HELP}")]


def suite_figures(
    suite: str,
    out: Path,
    *,
    seeds: str | None,
    limit: int | None,
    only: list[str] | None,
    device: str | None,
    dtype: str | None,
    fpr95: str = "interpolated",
) -> SuiteFigures:
    """Return the figures that the options of `ostta bench table`, `pictures` and `report` select."""
    from ..bench.figures import figures_of

    # Results may be read on a machine without the device of the runs.
    given = {name: value for name, value in {"device": device, "dtype": dtype}.items() if value is not None}
    chosen = parse_only(only or [])
    return figures_of(suite, out, seeds=parse_seeds(seeds), limit=limit, only=chosen, fpr95=fpr95, given=given)


def parse_device(name: str) -> str:
    """Return the device called `name` as a spec has it. "auto" is resolved here."""
    from ..core.devices import device_named

    device = device_named(name)
    return device.type if name == "auto" else str(name)


def named_code(name: str | None) -> Any:
    """Return the object that path/file.py:Name names, which executes the file; other names are returned unchanged."""
    from ..config.plugins import from_file, names_file

    return from_file(name) if name is not None and names_file(name) else name


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Return options from texts such as "lr=1e-3". The values stay texts; the type of each option decides how they are read."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise Error(f"--set takes key=value, not {pair!r}.", code="option-unreadable")
        options[key.strip()] = value.strip()
    return options


def parse_values(pairs: Sequence[str]) -> dict[str, list[str]]:
    """Return all texts of each option, which may be given several times.

    >>> parse_values(["lr=1e-3,3e-3", "losses=re", "losses=re,d"])
    {'lr': ['1e-3,3e-3'], 'losses': ['re', 're,d']}
    """
    values: dict[str, list[str]] = {}
    for pair in pairs:
        for name, value in parse_options([pair]).items():
            values.setdefault(name, []).append(value)
    return values


def parse_only(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the entries of axes from texts such as "method=rosita,zero_shot"."""
    only: dict[str, list[str]] = {}
    for text in texts:
        axis, equals, names = text.partition("=")
        if not equals or not names:
            raise Error(f"--only takes axis=entry,entry, not {text!r}.", code="option-unreadable")
        only.setdefault(axis.strip(), []).extend(name.strip() for name in names.split(","))
    return only


def parse_seeds(text: str | None) -> list[int] | None:
    """Return whole numbers from a text such as "0,1,2"."""
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise Error(f"--seeds takes whole numbers such as 0,1,2, not {text!r}.", code="option-unreadable") from None


def parse_shard(text: str) -> tuple[int, int]:
    """Return number and count from a text such as "1/4"."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise Error(f"--shard takes i/n, such as 1/4, not {text!r}.", code="option-unreadable")
    return int(number), int(count)
