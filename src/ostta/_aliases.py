"""Former module paths, which keep working: `import ostta.metrics` gives `ostta.evaluation.metrics`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ALIASES = {
    "ostta.analyses": "ostta.evaluation.analyses",
    "ostta.backbones.blocks": "ostta.backbones.towers",
    "ostta.backbones.context": "ostta.backbones.prompts",
    "ostta.backbones.folders": "ostta.backbones.huggingface",
    "ostta.backbones.hub": "ostta.backbones.huggingface",
    "ostta.backbones.loaded": "ostta.backbones.huggingface",
    "ostta.backbones.maple_files": "ostta.backbones.maple",
    "ostta.backbones.onnx_files": "ostta.backbones.onnx",
    "ostta.backbones.shared": "ostta.backbones.towers",
    "ostta.backbones.texts": "ostta.backbones.wrapped",
    "ostta.bench.run.execute": "ostta.bench.run",
    "ostta.core.cuts": "ostta.core.otsu",
    "ostta.core.images": "ostta.contrib.image_memory",
    "ostta.core.options": "ostta.config.declare",
    "ostta.data.class_descriptions": "ostta.data.class_names",
    "ostta.data.class_lists": "ostta.data.class_names",
    "ostta.data.completeness": "ostta.cli.data_check",
    "ostta.data.corruptions.ice": "ostta.data.corruptions.textures",
    "ostta.data.corruptions.plasma": "ostta.data.corruptions.textures",
    "ostta.data.download": "ostta.downloads",
    "ostta.data.features": "ostta.data.readers.features",
    "ostta.data.fingerprint": "ostta.data.dataset",
    "ostta.data.folder_check": "ostta.cli.data_check",
    "ostta.data.from_catalogue": "ostta.data.by_name",
    "ostta.data.generated": "ostta.data.corruptions.dataset",
    "ostta.data.headers": "ostta.data.image_limits",
    "ostta.data.large": "ostta.data.image_limits",
    "ostta.data.readers.cifar_c": "ostta.data.readers.arrays",
    "ostta.data.readers.idx": "ostta.data.readers.arrays",
    "ostta.data.readers.labelled": "ostta.data.readers.base",
    "ostta.data.readers.lists": "ostta.data.readers.folders",
    "ostta.data.readers.mat": "ostta.data.readers.arrays",
    "ostta.data.spellings": "ostta.cli.data_check",
    "ostta.evaluate": "ostta.evaluation.loop",
    "ostta.evaluation.significance": "ostta.evaluation.intervals",
    "ostta.evaluation.weighted_figures": "ostta.evaluation.resampling",
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
    "ostta.scores.protocol": "ostta.scores.base",
    "ostta.significance": "ostta.evaluation.intervals",
    "ostta.sources.archive": "ostta.sources.files",
    "ostta.sources.features": "ostta.sources.files",
    "ostta.sources.item": "ostta.sources.source",
    "ostta.sources.mjpeg": "ostta.sources.addresses",
    "ostta.sources.opening": "ostta.sources.factory",
    "ostta.sources.several": "ostta.sources.factory",
    "ostta.sources.web": "ostta.sources.addresses",
    "ostta.streams.corruption_path": "ostta.streams.smooth",
    "ostta.streams.drawn": "ostta.streams.mixing",
    "ostta.streams.ordered": "ostta.streams.single",
    "ostta.streams.shuffled": "ostta.streams.single",
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
