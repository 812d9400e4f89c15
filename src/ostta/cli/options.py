"""Options that several commands share, and the parsers of their values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import translate_errors
from ..core.types import Error

if TYPE_CHECKING:
    from ..bench.figures import SuiteFigures

DEVICE = "auto (a GPU if there is one), cpu, cuda, cuda:1 and so on, or mps."
DTYPE = "Precision of the model: float32, bfloat16 or float16."
CLASSES = (
    "Class names: a,b,c or a file with one name per line. Descriptions may follow a name, as in `cat: a photo of a "
    "house cat; a kitten`. Lines that start with # are comments."
)
OUT = Path("ostta-runs")

# --- models -----------------------------------------------------------------------------------------------------------
Backbone = Annotated[
    str,
    typer.Option(help="A name of `ostta ls backbones`, a local folder, onnx:FOLDER, features:FILE or file.py:Name."),
]
Method = Annotated[
    str | None, typer.Option(help="A name of `ostta ls methods`, or file.py:Name. Default: that of the profile.")
]
Score = Annotated[
    str | None, typer.Option(help="A name of `ostta ls scores`, or file.py:Name. Default: that of the profile.")
]
Identifier = Annotated[
    str | None, typer.Option(help="A name of `ostta ls identifiers`, or file.py:Name. Default: that of the profile.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="An option as key=value; repeat it for several options. See `ostta ls options`."),
]
Guard = Annotated[
    bool | None,
    typer.Option(
        "--guard/--no-guard",
        help="Watch the method without labels and undo harmful updates. On by default in `ostta stream`.",
    ),
]
Ahead = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1_024,
        help="Number of images that are encoded in one batch before they are decided; `ostta stream` and `ostta sort` "
        "use 16 by default. Ignored for live sources and for methods that train the image tower. Scores change by less "
        "than 1e-5.",
    ),
]
Classes = Annotated[str | None, typer.Option(help=CLASSES)]
Names = Annotated[str, typer.Option("--classes", help="Class names: a,b,c or a file with one name per line.")]
Template = Annotated[
    list[str] | None,
    typer.Option(help='A prompt template such as "a photo of a {}."; the embeddings of several are averaged.'),
]
Device = Annotated[str, typer.Option(help=DEVICE)]
Dtype = Annotated[str, typer.Option(help=DTYPE)]
Seed = Annotated[int, typer.Option(help="Random seed of the order of the stream, the corruption and the augmentation.")]

# --- data -------------------------------------------------------------------------------------------------------------
Data = Annotated[
    Path | None, typer.Option("--data", help="Folder of the data sets. Default: the environment variable OSTTA_DATA.")
]
Corruption = Annotated[str, typer.Option(help="Corruption of every data set whose name ends in c.")]
Severity = Annotated[int, typer.Option(help="Severity of the corruption, 1 to 5.")]

# --- results ----------------------------------------------------------------------------------------------------------
Out = Annotated[Path, typer.Option(help="Folder of the result files.")]
Records = Annotated[
    bool | None,
    typer.Option(
        "--records/--no-records",
        help="Keep the records of all images as parquet, which is the default. --records also repeats runs whose "
        "results have no records.",
    ),
]
Log = Annotated[
    str | None, typer.Option(help="Write curves during the runs: tensorboard:FOLDER, with one folder per run.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of runs at the same time. Default: the number of cores, at most 4.")
]
Opened = Annotated[
    list[str] | None,
    typer.Option("--open", help="A path or hub id in a result file that may be opened; repeat it for several."),
]
TextOrJson = Annotated[str, typer.Option("--format", help="text or json.")]
Seeds = Annotated[str | None, typer.Option(help="Seeds instead of those of the suite, such as 0,1,2.")]
Limit = Annotated[int | None, typer.Option(help="Number of known images per domain, if lower than in the suite.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        help="Part of an axis: axis=entry,entry, such as method=rosita,zero_shot; repeat it for several axes."
    ),
]


def select_figures(
    suite: Annotated[str, typer.Argument(help="A suite of `ostta bench ls`, a TOML file, or a folder of results.")],
    fpr95: Annotated[
        str, typer.Option(help="Definition of FPR95: interpolated (as published), strict or undesired.")
    ] = "interpolated",
    out: Out = OUT,
    seeds: Seeds = None,
    limit: Limit = None,
    only: Only = None,
    device: Annotated[str | None, typer.Option(help="The device of the runs: cpu, cuda or mps.")] = None,
    dtype: Annotated[str | None, typer.Option(help="The precision of the runs: float32, bfloat16 or float16.")] = None,
) -> SuiteFigures:
    """Return the figures of a suite, or of a folder of results."""
    from ..bench.figures import figures_of

    # The device is not resolved: results may be read on a machine without it.
    given = {name: value for name, value in {"device": device, "dtype": dtype}.items() if value is not None}
    chosen = parse_only(only or [])
    return figures_of(suite, out, seeds=parse_seeds(seeds), limit=limit, only=chosen, fpr95=fpr95, given=given)


def with_figures(command: Callable[..., None]) -> Callable[..., None]:
    """Add the parameters of `select_figures` to a command, whose first parameter receives the selected figures."""
    # Importing the type would slow down every command.
    names = {"SuiteFigures": object}
    shared = inspect.signature(select_figures, eval_str=True, locals=names).parameters
    _, *own = inspect.signature(command, eval_str=True, locals=names).parameters.values()

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        command(select_figures(**{name: values.pop(name) for name in shared}), **values)

    parameters = [*shared.values(), *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own)]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapped


# --- parsers ----------------------------------------------------------------------------------------------------------
def parse_device(name: str) -> str:
    """Return the name of the device for a run; "auto" is resolved."""
    from ..core.devices import device_named

    device = device_named(name)
    return device.type if name == "auto" else name


def load_code(name: str | None) -> Any:
    """Return the object that path/file.py:Name names, which executes the file; other names are returned unchanged."""
    from ..config.plugins import from_file, names_file

    return from_file(name) if name is not None and names_file(name) else name


def parse_names(text: str) -> tuple[str, ...]:
    """Return class names; an Error if they have descriptions, which embeddings from templates cannot use."""
    from ..data.class_names import described, parse_classes

    names, descriptions = described(parse_classes(text))
    if descriptions:
        raise Error(
            "Stored embeddings are computed from class names in templates: give the names without descriptions.",
            code="descriptions-unsupported",
        )
    return tuple(names)


def parse_values(pairs: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each option, which may be given several times, as text.

    >>> parse_values(["lr=1e-3,3e-3", "losses=re", "losses=re,d"])
    {'lr': ['1e-3,3e-3'], 'losses': ['re', 're,d']}
    """
    values: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise Error(f"--set takes key=value, not {pair!r}.", code="option-unreadable")
        values.setdefault(name.strip(), []).append(value.strip())
    return values


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the last value of each option as text; the type of the option decides how it is read."""
    return {name: texts[-1] for name, texts in parse_values(pairs).items()}


def parse_only(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the entries of axes from texts such as "method=rosita,zero_shot"."""
    only: dict[str, list[str]] = {}
    for text in texts:
        axis, _, names = text.partition("=")
        if not names:
            raise Error(f"--only takes axis=entry,entry, not {text!r}.", code="option-unreadable")
        only.setdefault(axis.strip(), []).extend(name.strip() for name in names.split(","))
    return only


def parse_shard(text: str) -> tuple[int, int]:
    """Return the two numbers of a text such as "1/4"."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise Error(f"--shard takes i/n, such as 1/4, not {text!r}.", code="option-unreadable")
    return int(number), int(count)


def parse_seeds(text: str | None) -> list[int] | None:
    """Return integers from a text such as "0,1,2"; None if there is no text."""
    return None if text is None else parse_integers("--seeds", text)


def parse_integers(option: str, text: str) -> list[int]:
    """Return integers from the text of an option, such as "0,1,2"."""
    with translate_errors("option-unreadable", f"{option} takes integers such as 0,1,2, not {text!r}.", ValueError):
        return [int(part) for part in text.split(",")]
