"""What the package imports is what it says it needs, and the versions that CI runs are among those it allows."""

from __future__ import annotations

import ast
import sys
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# Modules that are not called as the package they come from.
PACKAGES = {"PIL": "pillow", "ot": "pot", "sklearn": "scikit-learn"}
# Packages that others import for us: uvicorn its parser and its event loop.
THROUGH_OTHERS = {"httptools", "uvloop"}


def _named(requirements: list[str]) -> dict[str, Requirement]:
    found = [Requirement(text) for text in requirements]
    return {canonicalize_name(each.name): each for each in found if each.name != "ostta"}


def _imported() -> set[str]:
    modules = set()
    for path in (ROOT / "src" / "ostta").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                modules.add(node.module.partition(".")[0])
            elif (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("importlib.import_module", "import_extra")
                and isinstance(node.args[0], ast.Constant)  # else inside a function that is itself called with a name
            ):
                # A name with a dot before it is a module of the package itself.
                modules.add(ast.literal_eval(node.args[0]).partition(".")[0] or "ostta")
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LIBRARIES":
                modules |= set(ast.literal_eval(node.value))
    others = modules - set(sys.stdlib_module_names) - {"ostta"}
    return {canonicalize_name(PACKAGES.get(module, module)) for module in others}


def test_what_is_imported_is_declared_and_the_other_way_round() -> None:
    declared = _named(PROJECT["dependencies"])
    for extra, requirements in EXTRAS.items():
        if extra not in ("dev", "docs"):  # tools, of which the package imports nothing
            declared |= _named(requirements)
    assert set(declared) - THROUGH_OTHERS == _imported()


def test_every_requirement_has_a_floor_that_the_versions_of_ci_meet() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    for requirements in (PROJECT["dependencies"], *EXTRAS.values()):
        for name, requirement in _named(requirements).items():
            assert any(part.operator == ">=" for part in requirement.specifier), requirement
            assert requirement.specifier.contains(versions[name]), requirement
