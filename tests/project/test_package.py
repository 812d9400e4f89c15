"""Wheel and sdist.

What is in them, what they say of themselves, and that the wheel works where nothing else is installed.
"""

from __future__ import annotations

import email
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from helpers.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = PROJECT["project"]["version"]
MODULE = [sys.executable, "-m"]
MOST_WHEEL_BYTES = 25_000_000


def _call(*command: str, **more) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both; the wheel is made from the sdist, so that a file the sdist lacks is missing in it too."""
    pytest.importorskip("hatchling", reason="the build tool is not installed")
    folder = tmp_path_factory.mktemp("dist")
    _call(*MODULE, "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    assert path.name == f"ostta-{VERSION}-py3-none-any.whl"
    return path


def _sources() -> set[str]:
    """Every file of the package: code, the embedded model, samples, suites, the paper's figures, templates, pages."""
    files = (path for path in (ROOT / "src" / "ostta").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT / "src").as_posix() for path in files}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert names == _sources()
    # By name, so that a file that moves is noticed.
    for kind in ("model/model.safetensors", "sample/cifar10.parquet", "suites/paper/table-cifar.toml", "py.typed"):
        assert any(name.endswith(kind) for name in names), kind


def test_the_wheel_is_small_and_has_the_notices(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_WHEEL_BYTES
    with zipfile.ZipFile(wheel) as opened:
        notices = {name.rpartition("/licenses/")[2] for name in opened.namelist() if "/licenses/" in name}
    assert {"LICENSE", *(f"LICENSES/{file.name}" for file in (ROOT / "LICENSES").iterdir())} == notices


def test_the_sdist_has_the_sources_and_what_the_project_says(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {f"src/{name}" for name in _sources()} <= names
    included = {entry.strip("/") for entry in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]} - {
        "src"
    }
    always = {"pyproject.toml", "PKG-INFO", ".gitignore"}
    # Of a folder, its files.
    assert {name.partition("/")[0] for name in names if not name.startswith("src/")} == included | always
    assert {f"LICENSES/{file.name}" for file in (ROOT / "LICENSES").iterdir()} <= names
    assert not [name for name in names if "golden" in name or "conftest" in name]


def test_both_are_what_an_index_takes(built: Path) -> None:
    said = _call(*MODULE, "twine", "check", "--strict", *map(str, sorted(built.iterdir())))
    assert said.count("PASSED") == 2


def test_the_metadata_are_those_of_the_project(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        data = email.message_from_bytes(opened.read(f"ostta-{VERSION}.dist-info/METADATA"))
        scripts = opened.read(f"ostta-{VERSION}.dist-info/entry_points.txt").decode()
    assert (data["Name"], data["Version"]) == ("ostta", VERSION)
    assert data["License-Expression"] == PROJECT["project"]["license"]
    assert data["Author"] == PROJECT["project"]["authors"][0]["name"]
    assert set(data.get_all("Project-URL")) == {f"{name}, {url}" for name, url in PROJECT["project"]["urls"].items()}
    assert set(data.get_all("Provides-Extra")) == set(PROJECT["project"]["optional-dependencies"])
    assert data.get_payload().startswith("# ostta")
    assert "ostta = ostta.cli:main" in scripts


def licence_rows() -> list[list[str]]:
    """Return the rows of LICENSES/README.md: files, content, licence, notices."""
    lines = (ROOT / "LICENSES" / "README.md").read_text(encoding="utf-8").splitlines()
    return [[part.strip() for part in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]


def test_every_file_of_weights_images_and_lists_has_its_licence() -> None:
    rows = licence_rows()
    named = {path: row[2] for row in rows for path in re.findall(r"`([^`]+)`", row[0])}
    package = ROOT / "src" / "ostta"
    assert all((package / path).exists() for path in named)
    data = [path for path in package.rglob("*") if path.suffix in (".safetensors", ".parquet", ".csv", ".txt", ".json")]
    for path in data:
        name = path.relative_to(package).as_posix()
        assert any(name == each or (each.endswith("/") and name.startswith(each)) for each in named), name
    assert {row[2] for row in rows} == set(PROJECT["project"]["license"].split(" AND "))
    notices = {link for row in rows for link in re.findall(r"\]\(([^)]+)\)", row[3])}
    assert {file.name for file in (ROOT / "LICENSES").iterdir()} - {"README.md"} == notices - {"../LICENSE"}


def test_extras_are_complete() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(everything.removeprefix("ostta[").removesuffix("]").split(",")) == set(extras) - {"all", "dev", "docs"}
    assert "ostta[all,docs]" in extras["dev"]
    # The extra that an error message names has the library.
    from ostta.cli import EXTRAS

    modules = {"ot": "pot", "sklearn": "scikit-learn", "starlette": "fastapi"}
    for module, extra in EXTRAS.items():
        assert any(line.startswith(modules.get(module, module.replace("_", "-"))) for line in extras[extra]), (
            module,
            extra,
        )


def test_links_of_the_readme_are_absolute_once_the_repository_has_an_address() -> None:
    sys.path.insert(0, str(ROOT))
    try:
        hook = pytest.importorskip("hatch_build", reason="the build tool is not installed")
    finally:
        sys.path.remove(str(ROOT))
    text = "![p](docs/a.png) [b](docs/b.md#c) [d](https://e.org) [f](#g)"
    assert hook.absolute_links(text, "https://host/x/") == (
        "![p](https://host/x/raw/HEAD/docs/a.png) [b](https://host/x/blob/HEAD/docs/b.md#c) [d](https://e.org) [f](#g)"
    )
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited.get("repository-code") == PROJECT["project"]["urls"].get("Repository")


def test_the_workflow_covers_every_supported_python_and_the_floors() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    assert set(jobs) == {"lint", "tests", "floors", "docs", "wheel"}
    supported = [name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if ":: 3." in name]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == supported
    printed = _call(sys.executable, str(ROOT / "tools" / "floors.py")).splitlines()
    assert "numpy==2.0.2" in printed
    assert all(
        (ROOT / test).exists() for test in _call(sys.executable, str(ROOT / "tools" / "floors.py"), "--tests").split()
    )


# Without any of the libraries that only `bench` installs.
STREAM = """
import sys
for name in ("sklearn", "ot", "matplotlib", "pandas", "scipy", "threadpoolctl", "av"):
    sys.modules[name] = None
from ostta.cli import main
main()
"""


def test_stream_writes_its_folder_with_the_extra_stream_alone(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "images").mkdir()
    for number in range(3):
        Image.new("RGB", (32, 32), (80 * number, 90, 160)).save(tmp_path / "images" / f"{number}.png")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    _call(
        sys.executable, "-c", STREAM, "stream", "images", "--classes", "cat,dog", "--out", "out",
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert {"predictions.csv", "predictions.parquet", "report.html"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    refused = subprocess.run(
        [sys.executable, "-c", STREAM, "stream", "rtsp://127.0.0.1:1/a", "--classes", "cat,dog"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert refused.stderr.strip().splitlines()[-1].endswith('`pip install "ostta[video]"`.')


def test_the_version_is_said_alike_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    released = re.findall(r"^## ([\d.]+) \((\d\S+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)
    assert released[0] == (VERSION, cited["date-released"])
    assert str(cited["version"]) == VERSION
    supported = VERSION.rpartition(".")[0]
    assert f"The newest minor version: {supported}." in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


# Of version 1.2.0 of the format: what must be there, and what may be, in the file and in a reference.
REQUIRED = {"cff-version", "message", "title", "authors"}
KNOWN = REQUIRED | {
    "abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license", "license-url",
    "preferred-citation",
    "references", "repository", "repository-artifact", "repository-code", "type", "url", "version",
}  # fmt: skip
OF_A_REFERENCE = {"type", "title", "authors", "year", "journal", "url", "doi", "volume", "issue", "start", "end"}


def test_the_citation_file_has_the_keys_of_its_format() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert REQUIRED <= set(cited) <= KNOWN
    assert cited["cff-version"] == "1.2.0"
    assert cited["type"] in ("software", "dataset")
    assert cited["license"] == PROJECT["project"]["license"].partition(" AND ")[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", cited["date-released"])
    for reference in cited["references"]:
        assert {"type", "title", "authors"} <= set(reference) <= OF_A_REFERENCE
    people = [*cited["authors"], *(who for reference in cited["references"] for who in reference["authors"])]
    assert all(set(who) == {"name"} or {"family-names", "given-names"} <= set(who) for who in people)


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_templates_of_issues_are_forms(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        assert set(form) <= {"blank_issues_enabled", "contact_links"}
        return
    assert {"name", "description", "body"} <= set(form)
    asked = [field["id"] for field in form["body"]]
    assert len(set(asked)) == len(asked)
    for field in form["body"]:
        assert field["type"] in ("textarea", "input", "dropdown", "checkboxes")
        assert field["attributes"]["label"]


THREE_LINES = """
import ostta, torch
adapter = ostta.load(ostta.backbones.wrap(None, torch.eye(4)), ["cat", "dog", "ship", "fox"])
print(adapter.step_features(torch.tensor([1.0, 0.1, 0.0, 0.0])).label)
"""
WITHOUT_EXTRAS = """
import importlib.util, ostta
assert importlib.util.find_spec("transformers") is None
try:
    ostta.load("embedded", ["cat"])
except ostta.Error as problem:
    print(problem)
"""


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """Slow: torch is installed anew, which takes minutes on a busy machine."""
    venv.create(tmp_path / "empty", with_pip=True)
    python, ostta = (str(tmp_path / "empty" / "bin" / name) for name in ("python", "ostta"))
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    more = shlex.split(os.environ.get("PIP_ARGS", ""))
    # As the Makefile installs, but for the extras.
    _call(
        python, "-m", "pip", "--disable-pip-version-check", "install", "-q", "-c", str(ROOT / "constraints.txt"),
        "--only-binary", ":all:", *more, f"{wheel}[stream]", env=clean,
    )  # fmt: skip
    assert _call(ostta, "--version", cwd=tmp_path, env=clean).strip() == VERSION
    assert _call(python, "-c", THREE_LINES, cwd=tmp_path, env=clean).strip() == "cat"
    notebook = json.loads((ROOT / "examples" / "photographs.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    said = _call(python, "-c", "\n".join(cells), cwd=tmp_path, env=clean)
    assert said.rstrip().endswith("same answers: True")
    # What is not installed is named, with how to get it.
    (sentence,) = _call(python, "-c", WITHOUT_EXTRAS, cwd=tmp_path, env=clean).splitlines()
    assert "pip install" in sentence
    assert _call(python, "-m", "pip", "check", env=clean).strip() == "No broken requirements found."
