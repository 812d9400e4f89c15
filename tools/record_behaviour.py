"""Record what users and files rely on, so that a change of the code cannot change it unnoticed.

    python tools/record_behaviour.py           # rewrite tests/recorded/*.json, after a change that is meant
    python tools/record_behaviour.py keys cli  # rewrite some of them

`tests/test_recorded.py` computes the same values again and compares them. Each part is a function below:

    predictions  predictions and state files of every method, score and identifier, and of a pool, on sample images
    keys         the run keys of every suite, and result paths of some runs on sample images
    names        registered names, options with their defaults, signatures of the public surface, keys of a prediction
    cli          every command with its arguments and options; the help texts may be reworded
    http         every address of the server with its parameters and answers; the descriptions may be reworded
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import io
import json
import os
import platform
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import torch

import ostta
from ostta.bench.run import prepare
from ostta.bench.spec import RunSpec, run_key
from ostta.bench.suite import expand, load_suite, suite_names
from ostta.config import registry
from ostta.config.resolve import AdapterOptions
from ostta.data import open_dataset
from ostta.guard.options import GuardOptions

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "recorded"
# Methods that encode 64 views of each image see fewer images, so that the whole recording takes half a minute.
IMAGES, IMAGES_WITH_VIEWS = 100, 20
NEED_MAPLE = ("palign", "palign_c")
# The rule of the profile `field` has tests of its own.
LEFT_OUT = ("field",)
SPECS: tuple[dict[str, Any], ...] = (
    {"method": "zero_shot"},
    {"method": "rosita", "options": {"lr": 0.001, "losses": ["re", "d"]}},
    {"method": "tda", "profile": "paper", "seed": 3},
    {"method": "dpe", "undesired": None, "ratio": 0.0},
    {"method": "zero_shot", "score": "energy", "guard": True},
    {"method": "rosita", "scenario": {"kind": "smooth"}},
)


# --- predictions ------------------------------------------------------------------------------------------------------
@cache
def backbone(name: str) -> Any:
    return ostta.backbones.as_backbone(name, "cpu", None)


@cache
def stream(count: int) -> tuple[Any, ...]:
    """Photographs of known classes and digits, which are unknown, in turn."""
    photos, digits = open_dataset("sample:cifar10c"), open_dataset("sample:mnist")
    return tuple((photos if i % 5 % 2 == 0 else digits).image(i) for i in range(count))


def cases() -> dict[str, dict[str, Any]]:
    """What is loaded, by name: every method, every score, every identifier."""
    found: dict[str, dict[str, Any]] = {
        f"method {name}": {"method": name} for name in registry.component_names("method")
    }
    for kind in ("score", "identifier"):
        names = [name for name in registry.component_names(kind) if name not in LEFT_OUT]
        found |= {f"{kind} {name}": {"method": "tda", kind: name} for name in names}
    found["profile paper"] = {"method": "rosita", "profile": "paper"}
    found["options"] = {
        "method": "rosita", "answer": "levelled", "reset_every": 10, "class_scores": True, "features": True,
        "group": "lora", "rank": 2,
    }  # fmt: skip
    found["answer before"] = {"method": "unient", "answer_from": "before", "group": "prompts+layernorm"}
    return found


def load(method: str, seed: int = 0, **options: Any) -> ostta.Adapter:
    model = backbone("embedded+maple" if method in NEED_MAPLE else "embedded")
    return ostta.load(model, open_dataset("sample:cifar10c").classes, method, seed=seed, **options)


def run_case(options: dict[str, Any]) -> dict[str, Any]:
    """The predictions of a short stream, with a state file in its middle and images encoded ahead after it."""
    adapter = load(**options)
    images = stream(IMAGES_WITH_VIEWS if adapter.method.views > 2 else IMAGES)
    half = len(images) // 2
    predictions = [adapter.step(image) for image in images[:half]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "half.ostta"
        adapter.save(path)
        adapter = ostta.Adapter.restore(path, adapter.backbone)
    predictions += [adapter.predict(images[0])]
    predictions += list(adapter.stream(images[half:], ahead=4))
    return {**summary(predictions), "state": state_digest(adapter)}


def run_pool() -> dict[str, Any]:
    """Three streams of a pool, which learn in shared steps."""
    pool = ostta.StreamPool(backbone("embedded"))
    classes = open_dataset("sample:cifar10c").classes
    for name, method in (("a", "rosita"), ("b", "unient"), ("c", "tda")):
        pool.add(name, classes, method=method)
    images, predictions = stream(60), []
    for i in range(0, 60, 3):
        answers = pool.step({"a": images[i], "b": images[i + 1], "c": images[i + 2]})
        predictions += [answers[name] for name in ("a", "b", "c")]
    return summary(predictions)


def summary(predictions: Iterable[ostta.Prediction]) -> dict[str, Any]:
    """What was answered, readable, and a digest of every number."""
    told = [json.loads(prediction.to_json()) for prediction in predictions]
    for entry in told:
        entry.pop("ms")
    return {
        "index": " ".join(str(entry["index"]) for entry in told),
        "known": "".join("01"[entry["known"]] for entry in told),
        "adapted": "".join("01"[entry["adapted"]] for entry in told),
        "mean_score": sum(entry["score"] for entry in told) / len(told),
        "mean_loss": sum(entry["loss"] or 0.0 for entry in told) / len(told),
        "last_threshold": told[-1]["threshold"],
        "digest": digest(told),
    }


def state_digest(adapter: ostta.Adapter) -> str:
    """A digest of what a state file holds, but for the versions of libraries."""
    copied = adapter.copy_state()
    described = {key: value for key, value in copied.description.items() if key != "versions"}
    tensors = {
        name: (str(tensor.dtype), list(tensor.shape), digest(tensor.cpu().contiguous().flatten().tolist()))
        for name, tensor in sorted(copied.tensors.items())
    }
    return digest([described, tensors])


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def environment() -> str:
    """Describe the machine: digests are equal only on the same processor with the same version of torch."""
    processor = platform.processor() or platform.machine()
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
        facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
        # The name alone does not tell generations apart.
        processor = "{model name} {cpu family}/{model}".format_map(facts)
    except (OSError, KeyError):
        pass
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{platform.system()}, {processor}, {capability}, torch {torch.__version__}"


def predictions() -> dict[str, Any]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = {name: run_case(options) for name, options in cases().items()}
            found["pool"] = run_pool()
    finally:
        torch.set_num_threads(threads)
    return {"environment": environment(), "cases": found}


# --- run keys ---------------------------------------------------------------------------------------------------------
def keys() -> dict[str, Any]:
    here = os.getcwd()
    os.chdir("/")  # a relative folder of data is placed from where the command runs
    try:
        suites = {name: suite_keys(name) for name in suite_names()}
        paths = [prepare(sample_spec(given), None).path(Path("results")).as_posix() for given in SPECS]
    finally:
        os.chdir(here)
    return {"suites": suites, "paths": paths}


def sample_spec(given: dict[str, Any]) -> RunSpec:
    return RunSpec(**{"desired": "sample:cifar10c", "undesired": "sample:mnist", "limit": 12, **given})


def suite_keys(name: str) -> dict[str, Any]:
    cells = [[*cell.row, *cell.column, cell.seed, run_key(cell.spec)] for cell in expand(load_suite(name))]
    return {"cells": len(cells), "first": cells[0], "last": cells[-1], "digest": digest(cells)}


# --- names ------------------------------------------------------------------------------------------------------------
def names() -> dict[str, Any]:
    owners: dict[str, Any] = {"adapter": AdapterOptions, "guard": GuardOptions}
    for kind in registry.COMPONENT_KINDS:
        owners |= {
            f"{kind} {name}": registry.find_component(kind, name).options for name in registry.component_names(kind)
        }
    prediction = load("zero_shot", class_scores=True, features=True).step(stream(1)[0])
    return {
        "registered": {kind: sorted(registry.component_names(kind)) for kind in registry.COMPONENT_KINDS},
        "options": {owner: {field.name: str(field.default) for field in fields(of)} for owner, of in owners.items()},
        "signatures": {
            "load": signature(ostta.load),
            **{f"Adapter.{name}": signature(of) for name, of in public(ostta.Adapter)},
            **{f"StreamPool.{name}": signature(of) for name, of in public(ostta.StreamPool)},
        },
        "surface": sorted(ostta.__all__),
        "prediction": sorted(json.loads(prediction.to_json())),
    }


def public(of: type[Any]) -> list[tuple[str, Callable[..., Any]]]:
    found = [("__init__", of.__init__)]  # type: ignore[misc]
    for name, member in sorted(vars(of).items()):
        member = getattr(member, "__func__", getattr(member, "fget", member))
        if not name.startswith("_") and callable(member) and is_documented(member):
            found.append((name, member))
    return found


def is_documented(member: Callable[..., Any]) -> bool:
    """Whether the docstring has an example: other methods are for the package's own use."""
    return ">>>" in (member.__doc__ or "")


def signature(of: Callable[..., Any]) -> str:
    parameters = inspect.signature(of).parameters.values()
    return ", ".join(
        ("*" * (parameter.kind == parameter.VAR_POSITIONAL) + "**" * (parameter.kind == parameter.VAR_KEYWORD))
        + parameter.name
        + ("" if parameter.default is parameter.empty else f"={parameter.default!r}")
        for parameter in parameters
    )


# --- the command line and the server ----------------------------------------------------------------------------------
def cli() -> dict[str, Any]:
    import typer

    from ostta.cli.app import app

    return dict(commands(typer.main.get_command(app), "ostta"))


def commands(command: Any, path: str) -> Iterable[tuple[str, dict[str, Any]]]:
    yield path, {" ".join([*one.opts, *one.secondary_opts]): parameter(one) for one in command.params}
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


def parameter(one: Any) -> str:
    default = "" if callable(one.default) or one.default is None else f" = {one.default}"
    repeated = "..." if getattr(one, "multiple", False) or one.nargs == -1 else ""
    return f"{repeated}{default}{' (required)' if one.required else ''}".strip()


def http() -> dict[str, Any]:
    from fastapi.testclient import TestClient

    from ostta.server import LocalEngine, create_app
    from ostta.server.logs import log_to

    app = create_app(LocalEngine(ostta.StreamPool(backbone("embedded"))))
    log_to(io.StringIO())
    with TestClient(app, "http://localhost") as client:
        described = client.get("/openapi.json").json()
    return {
        f"{method.upper()} {path}": {
            "parameters": sorted(f"{one['in']} {one['name']}" for one in operation.get("parameters", [])),
            "takes": sorted(operation.get("requestBody", {}).get("content", {})),
            "answers": {status: sorted(answer.get("content", {})) for status, answer in operation["responses"].items()},
        }
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "predictions": predictions,
    "keys": keys,
    "names": names,
    "cli": cli,
    "http": http,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Rewrite the recording in tests/recorded.")
    parser.add_argument("part", nargs="*", help=f"Parts to rewrite ({', '.join(PARTS)}); all if none is given.")
    for part in parser.parse_args().part or PARTS:
        path = FOLDER / f"{part}.json"
        path.write_text(json.dumps(PARTS[part](), indent=1) + "\n", encoding="utf-8")
        print(path.relative_to(FOLDER.parents[1]), path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
