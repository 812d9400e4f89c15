"""Methods, identifiers, backbones and data sets from outside: by class, by entry point, by file."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import warnings
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import ostta
from helpers.cases import CLASSES, SmallTower, backbone, content, images, same, trace
from helpers.errors import raises
from helpers.paths import TESTS
from ostta import Error
from ostta.bench.collected import collect_results
from ostta.bench.result import read_result
from ostta.bench.run import prepare, run
from ostta.bench.runner import plan, run_grid
from ostta.bench.spec import RunSpec, run_key, sources_of, with_code
from ostta.bench.suite import load_suite
from ostta.bench.verify import verify
from ostta.bench.workers import Job, attempt
from ostta.cli.app import app
from ostta.config import plugins
from ostta.data.by_name import open_dataset
from ostta.identifiers import LDA
from ostta.live import StreamPool
from ostta.live.state_keeper import AdapterSettings, open_adapter

OUTSIDE = TESTS / "outside" / "class_means.py"
FILE = f"{OUTSIDE}:ClassMeans"


class MyLDA(LDA):
    """An identifier of a user's own."""

    about = "as lda"


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a package that registers entry points: `register(ostta_methods={"name".

    "module:Name"})`, with files by name.
    """

    def install(entry_points: dict[str, dict[str, str]], **files: str) -> None:
        about = tmp_path / "birds-1.0.dist-info"
        about.mkdir()
        about.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: birds\nVersion: 1.0\n")
        lines = [
            line
            for group, entries in entry_points.items()
            for line in (f"[ostta.{group}]", *(f"{name} = {place}" for name, place in entries.items()))
        ]
        about.joinpath("entry_points.txt").write_text("\n".join(lines) + "\n")
        for name, source in files.items():
            (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        plugins._entry_points.cache_clear()

    before = set(sys.modules)
    yield install
    for name in set(sys.modules) - before:
        if name.startswith("birds_"):
            del sys.modules[name]
    plugins._entry_points.cache_clear()


def mine() -> type:
    return plugins.from_file(FILE)


def test_a_method_and_an_identifier_may_be_classes() -> None:
    by_name = ostta.load(backbone("wrapped"), CLASSES, method="rosita", identifier="lda")
    by_class = ostta.load(backbone("wrapped"), CLASSES, method=ostta.methods.METHODS["rosita"], identifier=LDA)
    assert (by_class.method_name, by_class.identifier_name) == ("rosita", "lda")
    assert trace(by_class.stream(images(8))) == trace(by_name.stream(images(8)))
    own = ostta.load(backbone("wrapped"), CLASSES, method=mine(), identifier=MyLDA, weight="0.4", window=32)
    assert (own.method_name, own.identifier_name) == ("class_means.py:ClassMeans", f"{__name__}:MyLDA")
    assert (own.resolved.method.weight, own.resolved.identifier.window) == (0.4, 32)
    assert own.resolved.sources["method"]["weight"] == "explicit"
    assert ostta.load(backbone("wrapped"), CLASSES, method=mine(), profile="paper").resolved.method.weight == 0.5
    with raises("option-unknown"):
        ostta.load(backbone("wrapped"), CLASSES, method=mine(), wait=3)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"method": int}, "component-invalid"),
        ({"method": 3}, "component-invalid"),
        ({"identifier": SmallTower}, "component-invalid"),
        ({"method": "rosito"}, "method-unknown"),
        ({"method": FILE}, "code-not-allowed"),
        (
            {"identifier": FILE},
            "code-not-allowed",
        ),
    ],
)
def test_what_is_neither_is_said(given: dict, code: str) -> None:
    with raises(code):
        ostta.load(backbone("wrapped"), CLASSES, **given)


def test_a_backbone_may_be_what_makes_it() -> None:
    def tower() -> ostta.backbones.Backbone:
        torch.manual_seed(0)
        return ostta.backbones.wrap(SmallTower(), torch.randn(len(CLASSES), 16), image_size=32)

    made = ostta.load(tower, CLASSES, method="rosita")
    assert trace(made.stream(images(6))) == trace(
        ostta.load(backbone("wrapped"), CLASSES, method="rosita").stream(images(6))
    )
    with raises("backbone-invalid"):
        ostta.load(int, CLASSES, method="rosita")
    with raises("backbone-invalid"):
        ostta.load(3, CLASSES, method="rosita")  # type: ignore[arg-type]
    with raises("code-not-allowed"):
        ostta.load(FILE, CLASSES, method="rosita")


def test_a_state_of_a_method_from_outside_comes_back_with_its_class(tmp_path: Path) -> None:
    one = ostta.load(backbone("wrapped"), CLASSES, method=mine(), identifier=MyLDA)
    for image in images(12):
        one.step(image)
    one.save(tmp_path / "state.ostta")
    again = ostta.Adapter.restore(tmp_path / "state.ostta", backbone("wrapped"), method=mine(), identifier=MyLDA)
    assert same(content(one), content(again))
    assert again.resolved == one.resolved
    assert trace(again.stream(images(4))) == trace(one.stream(images(4)))
    wanted = AdapterSettings(classes=CLASSES, backbone=backbone("wrapped"), method=mine(), identifier=MyLDA)
    kept = open_adapter(wanted, tmp_path / "state.ostta")
    assert kept.steps == 12
    pool = StreamPool(backbone("wrapped"))
    pool.restore("door", tmp_path / "state.ostta", method=mine(), identifier=MyLDA)
    with raises("component-mismatch"):
        ostta.Adapter.restore(tmp_path / "state.ostta", backbone("wrapped"), method="rosita", identifier=MyLDA)


def test_a_state_file_names_registered_things_only(tmp_path: Path) -> None:
    """Whatever it says, no file is run and no module imported for it."""
    trap = tmp_path / "trap.py"
    trap.write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'sprung')!r}).touch()\nclass Trap: pass\n")
    one = ostta.load(backbone("wrapped"), CLASSES, method=mine())
    one.save(tmp_path / "state.ostta")
    with raises("component-not-registered"):
        ostta.Adapter.restore(tmp_path / "state.ostta", backbone("wrapped"))
    for name in (f"{trap}:Trap", "this:s", "antigravity:Trap"):
        for kind in ("method", "identifier"):
            described = {**one.describe(), kind: name}
            from safetensors.torch import save_file

            from ostta.state.file import FORMAT, _hash

            tensors = {key: value.contiguous() for key, value in one.pipeline.tensors().items()}
            text = json.dumps({"format": FORMAT, **described})
            save_file(tensors, tmp_path / "forged.ostta", {"ostta": text, "sha256": _hash(tensors, text)})
            others = {} if kind == "method" else {"method": mine()}
            with raises("component-not-registered"):
                ostta.Adapter.restore(tmp_path / "forged.ostta", backbone("wrapped"), **others)
    assert not (tmp_path / "sprung").exists()
    assert "antigravity" not in sys.modules


def test_packages_register_by_entry_points(register) -> None:
    register(
        {
            "methods": {
                "birds": "birds_method:ClassMeans",
                "rosita": "birds_method:ClassMeans",
                "bad": "birds_bad:Bad",
            },
            "identifiers": {"birds_lda": "birds_identifier:Mine"},
            "backbones": {"birds_tower": "birds_tower:tower"},
        },
        birds_method=OUTSIDE.read_text(),
        birds_bad="raise RuntimeError('no luck\\ntoday')",
        birds_identifier="from ostta.identifiers import LDA\nclass Mine(LDA):\n    about = 'mine'\n",
        birds_tower="import torch\nfrom ostta.backbones import wrap\n"
        "def tower():\n    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))\n"
        "    return wrap(net, torch.eye(4)[:2], image_size=8)\n",
    )
    one = ostta.load("birds_tower", ["ant", "bee"], method="birds", identifier="birds_lda", weight=0.1)
    assert (one.method_name, one.identifier_name, one.resolved.method.weight) == ("birds", "birds_lda", 0.1)
    assert ostta.load("birds_tower", ["ant", "bee"], method=type(one.method)).method_name == "birds"
    assert (
        ostta.load("birds_tower", ["ant", "bee"], group="full", method="rosita").choice.method.of
        is ostta.methods.METHODS["rosita"]
    )
    with pytest.raises(
        Error, match=r"^The method 'bad' of the package birds cannot be loaded: RuntimeError: no luck today\.$"
    ):
        ostta.load("birds_tower", ["ant", "bee"], method="bad")
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        listed = CliRunner().invoke(app, ["ls", "methods"]).output
    assert "birds" in listed
    assert "rosita" in listed
    said = [str(note.message) for note in notes]
    assert "The method 'bad' of the package birds cannot be loaded: RuntimeError: no luck today." in said
    assert "A package registers the method 'rosita', a name of ostta itself: it is ignored." in said
    assert "mine" in CliRunner().invoke(app, ["ls", "identifiers"]).output
    assert "weight of the class means" in CliRunner().invoke(app, ["ls", "options", "birds"]).output
    profiles = CliRunner().invoke(app, ["ls", "profiles"]).output
    assert [line.split()[:5] for line in profiles.splitlines() if line.startswith("birds ")] == [
        ["birds", "weight", "–", "0.3", "0.5"]
    ]
    assert "birds 1.0" in CliRunner().invoke(app, ["ls", "backbones"]).output


def test_a_state_of_a_registered_method_needs_nothing_given(register, tmp_path: Path) -> None:
    register({"methods": {"birds": "birds_method:ClassMeans"}}, birds_method=OUTSIDE.read_text())
    one = ostta.load(backbone("wrapped"), CLASSES, method="birds")
    one.step(images(1)[0])
    one.save(tmp_path / "state.ostta")
    again = ostta.Adapter.restore(tmp_path / "state.ostta", backbone("wrapped"))
    assert again.method_name == "birds"
    assert same(content(one), content(again))


def test_a_file_is_listed_where_a_person_names_it() -> None:
    assert "an example" in CliRunner().invoke(app, ["ls", "methods", FILE]).output
    assert "weight of the class means" in CliRunner().invoke(app, ["ls", "options", FILE]).output
    assert " 0.3 " in CliRunner().invoke(app, ["ls", "profiles", FILE]).output


@pytest.mark.parametrize(
    ("source", "name", "code"),
    [
        (None, "Mine", "file-not-found"),
        ("class Mine(:", "Mine", "plugin-failed"),
        ("import no_such_library", "Mine", "plugin-failed"),
        ("import torch\nclass Other: pass", "Mine", "plugin-invalid"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, source: str | None, name: str, code: str) -> None:
    if source is not None:
        (tmp_path / "own.py").write_text(source)
    with raises(code):
        plugins.from_file(f"{tmp_path / 'own.py'}:{name}")


def test_a_file_is_run_once_for_each_content(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("class Mine:\n    number = 1\n")
    first, hashed = plugins.from_file(f"{own}:Mine"), plugins.file_hash(f"{own}:Mine")
    assert hashed == hashlib.sha256(own.read_bytes()).hexdigest()
    assert plugins.from_file(f"{own}:Mine") is first
    own.write_text("class Mine:\n    number = 2\n")
    assert (first.number, plugins.from_file(f"{own}:Mine").number) == (1, 2)
    # What was asked for is what is run, even where the file has become another since.
    assert plugins.from_file(f"{own}:Mine", hashed) is first
    with raises("plugin-changed"):
        plugins.from_file(f"{own}:Mine", "0" * 64)


SAMPLES = {"desired": "sample:cifar10c", "undesired": "sample:mnist", "limit": 4}
SUITE = """
title = "Mine"
what = "an example"
labels = ["tab:mine"]
rows = ["method"]
metrics = ["hm"]
[base]
desired = "sample:cifar10c"
undesired = "sample:mnist"
limit = 4
[axes]
method = ["zero_shot", "class_means.py:ClassMeans"]
"""


def own_copy(folder: Path, note: str = "") -> Path:
    """The example's file in another folder."""
    folder.mkdir(exist_ok=True)
    copy = folder / OUTSIDE.name
    copy.write_text(OUTSIDE.read_text() + note)
    return copy


def test_ostta_run_takes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_copy(tmp_path)
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "--method", "class_means.py:ClassMeans", "--set", "weight=0.4", "--limit", "4", "--out", "runs"]
    arguments += ["--desired", "sample:cifar10c", "--undesired", "sample:mnist"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    (path,) = Path("runs").glob("*.json")
    result = read_result(path)
    assert result.spec.method == f"{tmp_path / 'class_means.py'}:ClassMeans"
    assert result.spec.plugins == {result.spec.method: hashlib.sha256(OUTSIDE.read_bytes()).hexdigest()}
    assert (result.spec.options, result.options["method"]["weight"]) == ({"weight": 0.4}, 0.4)
    # The same again is there already; an edited file is another run.
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert list(Path("runs").glob("*.json")) == [path]
    own_copy(tmp_path, "# another day\n")
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert len(list(Path("runs").glob("*.json"))) == 2


def test_a_changed_data_file_of_a_plug_in_is_another_run(tmp_path: Path) -> None:
    own, data = own_copy(tmp_path, "FILES = ['means.txt']\n"), tmp_path / "means.txt"
    asked = RunSpec(method=f"{own}:ClassMeans", **SAMPLES)
    with raises("file-not-found"):
        with_code(asked)
    data.write_text("1")
    before = with_code(asked)
    assert before.plugins[str(data)] == hashlib.sha256(b"1").hexdigest()
    path = run(before, None, tmp_path / "runs")
    assert run(with_code(asked), None, tmp_path / "runs") == path
    data.write_text("2")
    assert run(with_code(asked), None, tmp_path / "runs") != path
    with raises("plugin-changed"):
        prepare(before, None)


def test_a_spec_without_own_code_has_the_key_it_always_had() -> None:
    assert "plugins" not in RunSpec().model_dump()
    assert with_code(RunSpec(options={"lr": "1e-3"})) == RunSpec(options={"lr": 0.001})


def test_ostta_stream_takes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--classes", "cat,dog", "--method", FILE, "--state", str(tmp_path / "state.ostta")]
    for step, image in enumerate(images(2), 1):
        image.save(tmp_path / f"{step}.png")
        done = CliRunner().invoke(app, ["stream", str(tmp_path / f"{step}.png"), *arguments], catch_exceptions=False)
        assert json.loads(done.stdout)["step"] == step


def test_a_suite_with_two_workers_takes_a_file_beside_it(tmp_path: Path) -> None:
    own_copy(tmp_path)
    (tmp_path / "mine.toml").write_text(SUITE)
    suite = load_suite(str(tmp_path / "mine.toml"))
    specs = plan(suite)
    # The workers have what the file was when the runs were asked for.
    own_copy(tmp_path, "raise RuntimeError\n")
    summary = run_grid(specs, None, tmp_path / "runs", workers=2, threads=1)
    assert (summary.done, summary.failed) == (2, ())
    assert run_grid(specs, None, tmp_path / "runs", workers=2, threads=1).skipped == 2
    own_copy(tmp_path)
    assert collect_results(suite, tmp_path / "runs").found == 2
    # A machine that has the folder elsewhere agrees on who has which run.
    elsewhere = tmp_path / "elsewhere"
    own_copy(elsewhere)
    shutil.copy(tmp_path / "mine.toml", elsewhere)
    other = load_suite(str(elsewhere / "mine.toml"))
    for number in (1, 2):
        ours, theirs = (plan(each, shard=(number, 2)) for each in (suite, other))
        assert [Path(spec.method).name for spec in ours] == [Path(spec.method).name for spec in theirs]


def test_a_worker_needs_no_file(tmp_path: Path) -> None:
    """As on the machines of a Ray cluster: the job brings the content."""
    source = tmp_path / "there" / "gone.py"
    source.parent.mkdir()
    # Content that this process has not run.
    source.write_text(OUTSIDE.read_text() + f"# {tmp_path}\n")
    spec = RunSpec(
        method=f"{source}:ClassMeans", plugins={f"{source}:ClassMeans": plugins.file_hash(f"{source}:x")}, **SAMPLES
    )
    job = Job(spec=spec, root=None, out=tmp_path, sources=sources_of(spec))
    source.unlink()
    assert attempt(job.model_copy(update={"sources": []})).reason == (f"There is no Python file '{source}'.")
    again = Job.model_validate_json(job.model_dump_json())
    assert attempt(again).reason == ""


def test_a_checkpoint_of_a_method_from_outside_is_gone_on_from(tmp_path: Path) -> None:
    spec = with_code(RunSpec(method=FILE, **SAMPLES))
    whole = read_result(run(spec, None, tmp_path / "whole"))

    def stop(done: int, total: int, hm: float | None) -> None:
        seen.append(done)
        if done == 4 and len(seen) == 4:
            raise KeyboardInterrupt

    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        run(spec, None, tmp_path / "cut", checkpoint_every=2, watch=stop)
    cut = read_result(run(spec, None, tmp_path / "cut", checkpoint_every=2, watch=stop))
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (cut.metrics, cut.counts) == (whole.metrics, whole.counts)


def test_a_result_file_names_registered_things_only(tmp_path: Path) -> None:
    """No file is run because a result file names it, neither when it is read nor when it is verified."""
    trap = tmp_path / "trap.py"
    trap.write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'sprung')!r}).touch()\n" + OUTSIDE.read_text())
    made = run(with_code(RunSpec(method=FILE, **SAMPLES)), None, tmp_path)
    content = json.loads(made.read_text())
    name = f"{trap}:ClassMeans"
    hashed = plugins.file_hash(name)
    for field in ("method", "identifier", "backbone", "desired", "undesired"):
        content["spec"] |= {**RunSpec(**SAMPLES).model_dump(), field: name, "plugins": {name: hashed}}
        content["spec"]["options"] = {"weight": 0.5}
        (tmp_path / "forged.json").write_text(json.dumps(content))
        assert read_result(tmp_path / "forged.json").spec.plugins == {name: hashed}
        run_key(read_result(tmp_path / "forged.json").spec)
        with raises("consent-missing", match="which only the result file names: allow it with `--open"):
            verify(tmp_path / "forged.json", None)
    assert not (tmp_path / "sprung").exists()


def test_a_result_of_own_code_is_verified_where_the_file_is_opened(tmp_path: Path) -> None:
    own = own_copy(tmp_path / "code", f"# {tmp_path}\n")
    made = run(with_code(RunSpec(method=f"{own}:ClassMeans", **SAMPLES)), None, tmp_path)
    assert verify(made, None, opened=[f"{own}:ClassMeans"]).same
    content = json.loads(made.read_text())
    content["spec"]["plugins"] = {f"{own}:ClassMeans": "0" * 64}
    made.write_text(json.dumps(content))
    with raises("run-failed"):
        verify(made, None, opened=[f"{own}:ClassMeans"])


BIRDS = """
import numpy as np
from PIL import Image
from ostta.data import Dataset

def birds(root):
    labels = np.arange(6) % 2
    return Dataset("any", ("duck", "goose"), labels, "made", "", lambda i: Image.new("RGB", (8, 8), (i, 9, 9)))

def nothing(root):
    return None
"""


def test_data_sets_from_outside(register, tmp_path: Path) -> None:
    register({"datasets": {"birds": "birds_set:birds", "no_birds": "birds_set:nothing"}}, birds_set=BIRDS)
    birds = open_dataset("birds", limit=4)
    assert (birds.name, len(birds), birds.classes) == ("birds", 4, ("duck", "goose"))
    assert open_dataset("birds", classes=["a", "b"]).classes == ("a", "b")
    assert open_dataset("birdsc", corruption="fog").origin == "generated"
    with raises("plugin-invalid"):
        open_dataset("no_birds")
    assert "A plug-in of birds 1.0." in CliRunner().invoke(app, ["ls", "datasets"]).output
    spec = RunSpec(desired="birds", undesired="sample:mnist", limit=4, method="zero_shot")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = read_result(run(spec, None, tmp_path / "runs"))
    assert (result.stream.desired.name, result.versions["birds"]) == ("birds", "1.0")


def test_a_data_set_and_a_backbone_in_a_file(tmp_path: Path) -> None:
    tower = "import torch\nfrom ostta.backbones import wrap\nfrom torch import nn\n"
    tower += (
        "def tower():\n    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))\n    "
        "torch.nn.init.eye_(net[1].weight)\n"
    )
    tower += "    torch.nn.init.zeros_(net[1].bias)\n    return wrap(net, torch.eye(4)[:2], image_size=8)\n"
    (tmp_path / "own.py").write_text(BIRDS + tower)
    name = f"{tmp_path / 'own.py'}:birds"
    with raises("code-not-allowed"):
        open_dataset(name)
    spec = with_code(
        RunSpec(
            desired=name, undesired="sample:mnist", limit=4, backbone=f"{tmp_path / 'own.py'}:tower", method="zero_shot"
        )
    )
    assert len(spec.plugins) == 2
    prepared = prepare(spec, None)
    assert (prepared.adapter.backbone.feature_width, prepared.composed.desired.name) == (4, name)
    domains = {"kind": "domains", "domains": [{"desired": "own.py:birds"}, {"desired": name}]}
    several = with_code(RunSpec(scenario=domains, desired=name, backbone=spec.backbone, method="zero_shot"), tmp_path)
    assert {domain.desired for domain in several.scenario.domains} == {name}
