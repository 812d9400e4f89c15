"""Print the oldest version of every dependency that pyproject.toml allows, as constraints for pip.

    python tools/floors.py > floors.txt
    pip install -c floors.txt ".[bench,cli,clip,serve,stream]" pytest hypothesis

The tests named in TESTS cover what uses these libraries; the job `floors` of .github/workflows/ci.yml runs them.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
FOR_DEVELOPMENT = ("dev", "docs")
TESTS = (
    "tests/test_adapter.py",
    "tests/field/test_field.py",
    "tests/test_golden.py",
    "tests/data/test_images.py",
    "tests/evaluation/test_intervals.py",
    "tests/evaluation/test_metrics.py",
    "tests/live/test_outputs.py",
    "tests/backbones/test_photos.py",
    "tests/server/test_server.py",
    "tests/state/test_state.py",
    "tests/bench/test_suites.py",
)


def floors() -> dict[str, str]:
    """Return the floor of each dependency by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lists = [project["dependencies"], *(extras[name] for name in extras if name not in FOR_DEVELOPMENT)]
    requirements = [Requirement(line) for lines in lists for line in lines]
    found: dict[str, str] = {}
    for requirement in requirements:
        lowest = [clause.version for clause in requirement.specifier if clause.operator == ">="]
        if requirement.name == "ostta":
            continue
        if len(lowest) != 1 or found.get(requirement.name, lowest[0]) != lowest[0]:
            raise SystemExit(f"{requirement} needs exactly one floor, the same in every extra.")
        found[requirement.name] = lowest[0]
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["--tests"]:
        print(" ".join(TESTS))
    else:
        print("\n".join(f"{name}=={version}" for name, version in sorted(floors().items())))
