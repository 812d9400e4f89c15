"""Former paths of public modules, which keep working: `import ostta.metrics` gives `ostta.evaluation.metrics`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ALIASES = {
    "ostta.analyses": "ostta.evaluation.analyses",
    "ostta.bench.run.execute": "ostta.bench.run",
    "ostta.core.options": "ostta.config.declare",
    "ostta.evaluate": "ostta.evaluation.loop",
    "ostta.evaluation.records": "ostta.evaluation.loop",
    "ostta.evaluation.resampling": "ostta.evaluation.intervals",
    "ostta.files": "ostta.io",
    "ostta.identifiers.protocol": "ostta.identifiers.base",
    "ostta.intervals": "ostta.evaluation.intervals",
    "ostta.live.client": "ostta.client",
    "ostta.live.cluster": "ostta.server.cluster",
    "ostta.live.server": "ostta.server",
    "ostta.measures": "ostta.evaluation.measures",
    "ostta.methods.cliptta": "ostta.contrib.cliptta",
    "ostta.methods.protocol": "ostta.methods.base",
    "ostta.methods.tuning": "ostta.methods.base",
    "ostta.metrics": "ostta.evaluation.metrics",
    "ostta.options": "ostta.config.resolve",
    "ostta.plugins": "ostta.config.plugins",
    "ostta.profiles": "ostta.config.profiles",
    "ostta.registry": "ostta.config.registry",
    "ostta.regular_files": "ostta.io",
    "ostta.scores.dart": "ostta.contrib.dart",
    "ostta.scores.plain": "ostta.scores.base",
    "ostta.scores.protocol": "ostta.scores.base",
    "ostta.significance": "ostta.evaluation.intervals",
}

# Names that packages exported before their module moved, by the package that exports them now.
MOVED_NAMES = {"ostta.scores": {"Dart": "ostta.contrib", "DartOptions": "ostta.contrib"}}


def current_name(name: str) -> str | None:
    """Return the current path of a former module path, or None if the module did not move.

    >>> current_name("ostta.live.server.app"), current_name("ostta.adapter")
    ('ostta.server.app', None)
    """
    former = max((old for old in ALIASES if name == old or name.startswith(f"{old}.")), key=len, default=None)
    return None if former is None else ALIASES[former] + name[len(former) :]


class AliasFinder(MetaPathFinder, Loader):
    """Import the current module under its former name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if current_name(fullname) is None else ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        name = current_name(spec.name)
        assert name is not None
        module = importlib.import_module(name)
        # The import system replaces the specification of the module that it gets; `exec_module` puts it back.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Keep the module as it was executed under its current name."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Register the finder once, and add the names that moved to where they were."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        # First: a package that moved has a folder, in which the usual finder would find its modules a second time.
        sys.meta_path.insert(0, AliasFinder())
    for package, names in MOVED_NAMES.items():
        for name, home in names.items():
            setattr(sys.modules[package], name, getattr(sys.modules[home], name))
