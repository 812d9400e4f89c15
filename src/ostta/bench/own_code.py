"""Code of a person's own in a run: methods, scores, identifiers, backbones and data sets that the spec names as `path/file.py:Name`.

`asked` makes the spec of such a run, with the hash of each file in it, so that an edited file is another run. Carrying out a spec
runs the files that it names, as it opens the folders that it names: whoever has a spec from elsewhere, such as a result file,
asks first (`engine/verify.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..config import plugins
from ..config.resolve import canonical
from ..data.names import is_file
from .scenario import DomainsScenario
from .spec import RunSpec, changed

_CODE, _SETS = ("method", "score", "identifier", "backbone"), ("desired", "undesired")


def files_of(spec: RunSpec) -> list[str]:
    """The names in `spec` that are in files."""
    named = [name for field in _CODE if plugins.names_file(name := getattr(spec, field))]
    return list(dict.fromkeys([*named, *(name for name in sets_of(spec) if is_file(name))]))


def asked(spec: RunSpec, folder: Path | None = None) -> RunSpec:
    """The run that a person asks for. Files are run here, to read the options by their types; paths are meant from `folder`."""
    places = {name: plugins.placed_file(name, folder) for name in files_of(spec)}
    if not places:
        return spec
    hashes = {place: plugins.file_hash(place) for place in places.values()}
    fields: dict[str, Any] = {field: _placed(getattr(spec, field), places) for field in (*_CODE, *_SETS)}
    if isinstance(spec.scenario, DomainsScenario):
        domains = [
            {**domain.model_dump(), **{side: _placed(getattr(domain, side), places) for side in _SETS}}
            for domain in spec.scenario.domains
        ]
        fields["scenario"] = {**spec.scenario.model_dump(), "domains": domains}
    placed = changed(spec, **fields, plugins=hashes)
    code = code_of(placed)
    method, identifier = (code.get(name, name) for name in (placed.method, placed.identifier))
    score = None if placed.score is None else code.get(placed.score, placed.score)
    return changed(placed, options=canonical(method, score, identifier, spec.options))


def code_of(spec: RunSpec) -> dict[str, Any]:
    """What the names in files stand for; this runs the files, if they still are what was asked for."""
    return {name: plugins.from_file(name, spec.plugins.get(name)) for name in files_of(spec)}


def sources_of(spec: RunSpec) -> list[str]:
    """The content of the files, for a worker that may not have them. As Latin-1, in which every byte is a character."""
    return [plugins.source_of(name, spec.plugins.get(name)).decode("latin-1") for name in files_of(spec)]


def know_sources(sources: list[str]) -> None:
    """Take what `sources_of` gave elsewhere."""
    for source in sources:
        plugins.know_source(source.encode("latin-1"))


def packages_of(spec: RunSpec) -> dict[str, str]:
    """The packages, with their versions, that registered what `spec` names."""
    kinds: list[tuple[plugins.Kind, str]] = [
        ("method", spec.method),
        ("identifier", spec.identifier),
        *((("score", spec.score),) if spec.score is not None else ()),
        ("backbone", spec.backbone),
        *(("dataset", name) for name in sets_of(spec)),
        # They are computed at the end of every run.
        *(("measure", name) for name in plugins.registered_names("measure")),
    ]
    found = [plugins.package(kind, name).rpartition(" ") for kind, name in kinds]
    return {name: version for name, _, version in found if name}


def sets_of(spec: RunSpec) -> list[str]:
    """The data sets that `spec` names."""
    sets = [spec.desired, spec.undesired]
    if isinstance(spec.scenario, DomainsScenario):
        sets += [name for domain in spec.scenario.domains for name in (domain.desired, domain.undesired)]
    return [name for name in sets if name is not None]


def _placed(name: str | None, places: dict[str, str]) -> str | None:
    return None if name is None else places.get(name, name)
