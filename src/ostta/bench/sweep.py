"""Sweeps: several seeds or several values of options on one stream, written as a suite file.

A sweep compares values of options on a stream. Its suite has a remark on which images that was, because a value that
was chosen on test images looks better on them than it is.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config.resolve import canonical
from ..core.types import Error
from ..evaluation.metrics import NAMES
from ..io import make_folder, parse_json, write_atomically
from .naming import choice_remark, shown_stream
from .spec import RunSpec, changed, code_of, fields_of, is_frozen, name_of, parts_of, without_defaults

# The fields that an entry sets. All runs share the other fields; hashes of code are not written to a suite file.
_OF_ENTRY = tuple(name for name in fields_of("method") if name != "plugins")


FROZEN = "zero_shot"


@dataclass(frozen=True)
class Sweep:
    """Runs of `spec` with every combination of `values`, by the name of the option, and each of `seeds`."""

    spec: RunSpec
    values: Mapping[str, Sequence[Any]]
    seeds: Sequence[int]

    def entries(self) -> dict[str, RunSpec]:
        """Return the specs of the rows by name, the frozen one first."""
        found: dict[str, RunSpec] = {}
        if not is_frozen(self.spec):
            plain = {name: getattr(RunSpec(), name) for name in _OF_ENTRY} | {"method": FROZEN}
            found[FROZEN] = changed(self.spec, **plain, plugins={})
        for chosen in itertools.product(*self.values.values()):
            given = dict(zip(self.values, chosen, strict=True))
            name = " ".join(f"{option}={_word(value)}" for option, value in given.items()) or name_of(self.spec)
            # A comma would split the name on the command line.
            found[name.replace(",", " ")] = changed(self.spec, options={**self.spec.options, **given})
        return found

    def write(self, out: Path, *, records: bool = False, best: str = "") -> Path:
        """Write the suite file to the folder `out`. `best` is a sentence about the best row, if it is known."""
        rows = {name: _set_fields(spec) for name, spec in self.entries().items()}
        own = _set_fields(self.spec)
        base = {name: value for name, value in own.items() if name not in (*_OF_ENTRY, "seed", "plugins")}
        entries = {name: {key: row[key] for key in _OF_ENTRY if key in row} for name, row in rows.items()}
        content = {
            "title": f"{name_of(self.spec)}, {self._what()}",
            "what": shown_stream(self.spec),
            "remark": " ".join(filter(None, (best, self.remark()))),
            "seeds": list(self.seeds),
            **({"metrics": [*NAMES, "hm_worst_tenth"]} if self.spec.draw == "orders" else {}),
            "records": records,
            "base": base,
            "axes": {"variant": entries},
        }
        name = hashlib.sha256(json.dumps([content["title"], base, entries], sort_keys=True).encode()).hexdigest()[:8]
        path = out / f"sweep-{name}.toml"
        make_folder(out)
        write_atomically(path, "".join(f"{key} = {_toml(value)}\n" for key, value in content.items()).encode())
        return path

    def remark(self) -> str:
        """Return a remark about the images on which values were compared; empty for a single combination."""
        return choice_remark(self.spec) if len(list(itertools.product(*self.values.values()))) > 1 else ""

    def _what(self) -> str:
        if not self.values:
            return f"seeds {', '.join(map(str, self.seeds))}"
        return "; ".join(f"{name} {', '.join(map(_word, values))}" for name, values in self.values.items())


def sweep_of(spec: RunSpec, given: Mapping[str, Sequence[str]], seeds: Sequence[int]) -> Sweep:
    """Return the sweep of the options on the command line.

    `given` has the texts of each option. A text has several values as a JSON list or separated by commas, except for
    options that are lists.

    >>> sweep_of(RunSpec(), {"lr": ["1e-3,3e-3"], "losses": ["re,d"]}, [0]).values
    {'lr': [0.001, 0.003]}
    """
    parts = parts_of(spec, code_of(spec))
    alone, several = dict(spec.options), dict[str, list[Any]]()
    for option, texts in given.items():
        read = [value for text in texts for value in _read(parts, option, text)]
        if len(read) > 1:
            several[option] = read
        else:
            alone[option] = read[0]
    for option, values in several.items():
        if len({json.dumps(value) for value in values}) < len(values):
            raise Error(
                f"A value of `{option}` is given twice: {', '.join(map(_word, values))}.", code="option-conflict"
            )
    return Sweep(changed(spec, options=alone), several, tuple(seeds))


def _read(parts: tuple[Any, Any, Any], option: str, text: str) -> list[Any]:
    """Return the values in a text, by the type of the option."""

    def read(value: str) -> Any:
        return next(iter(canonical(*parts, {option: value}).values()))

    whole = read(text)
    if isinstance(whole, list):
        return [whole]
    with suppress(ValueError):
        if isinstance(values := parse_json(text), list):
            return [read(value) for value in values]
    return [read(value.strip()) for value in text.split(",")]


def _set_fields(spec: RunSpec) -> dict[str, Any]:
    """Return the fields that differ from their defaults, as in a suite file."""
    changes = without_defaults(spec.model_dump(mode="json"))
    return {name: value for name, value in changes.items() if value is not None} | (
        {"undesired": ""} if spec.undesired is None else {}
    )


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_word, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _toml(value: Any) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON allows this character, and TOML does not.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_toml(str(name))} = {_toml(each)}" for name, each in value.items() if each is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)
