"""The commands as a person meets them: output, exit codes, files."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TextIO

import pytest

from helpers.cases import images
from helpers.command import command, environment, ostta
from ostta.bench.result import read_result
from ostta.cli import main
from ostta.cli.listing import print_table
from ostta.cli.output import guarded_output
from ostta.core.types import Error
from ostta.live import state_keeper


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number, image in enumerate(images(30)):
        image.save(folder / f"{number:03}.png")
    return folder


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_importing_is_light() -> None:
    code = (
        "import sys, ostta; ostta.bench; heavy = {'transformers', 'sklearn', 'scipy', 'matplotlib', 'fastapi', "
        "'pyarrow', 'cv2', 'av', 'pydantic',"
        " 'typer', 'rich', 'torchvision', 'pandas', 'onnx', 'onnxruntime', 'onnxscript', 'ostta.live'};"
        " print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    "what", ["methods", "groups", "backbones", "identifiers", "datasets", "profiles", "options rosita"]
)
def test_ls(what: str) -> None:
    done = ostta("ls", *what.split())
    assert done.returncode == 0, done.stderr
    expected = {
        "methods": "rosita",
        "groups": "BatchNorm",
        "backbones": "embedded",
        "identifiers": "lda",
        "datasets": "cifar10c",
        "profiles": "D31",
        "options rosita": "contrast_weight",
    }
    assert expected[what] in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["run", "--help"],
        ["demo", "--help"],
        ["stream", "--help"],
        ["ls", "--help"],
        ["backbone", "export", "--help"],
    ],
)
def test_help_everywhere_with_an_example(arguments: list[str]) -> None:
    done = ostta(*arguments)
    assert done.returncode == 0
    assert len(arguments) == 1 or arguments[0] == "ls" or "Example: ostta" in done.stdout


def test_usage_is_exit_code_2() -> None:
    assert ostta("run", "--severe", "5").returncode == 2
    assert ostta("stream").returncode == 2
    assert ostta("demo", "--images", "3").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--method", "rosta"], "did you mean 'rosita'"),
        (["--desired", "sample:cifar10x"], "There is no data set"),
        (["--desired", "cifar10c"], "OSTTA_DATA"),
        (["--corruption", "rain"], "There is no corruption 'rain'"),
        (["--severity", "9"], "Severity 9"),
        (["--set", "lr"], "key=value"),
        (["--set", "lr=quick"], "must be a number"),
        (["--ratio", "-1"], "ratio"),
        (["--backbone", "nowhere"], "There is no backbone"),
        (["--backbone", "./nowhere"], "nowhere"),
        (["--desired", "folder:\udcff"], "not valid Unicode"),
        (["--classes", "cat,cat"], "are the same"),
    ],
)
def test_run_states_a_problem_in_one_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    sample = [
        "--desired",
        "sample:cifar10c",
        "--undesired",
        "sample:mnist",
        "--limit",
        "4",
        "--out",
        str(tmp_path / "out"),
    ]
    done = ostta("run", *sample, *arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_run_writes_one_result_and_does_not_run_twice(tmp_path: Path) -> None:
    arguments = [
        "run", "--desired", "sample:cifar10c", "--undesired", "sample:mnist", "--limit", "40", "--ratio", "0.5",
        "--set", "losses=re,d", "--records", "--out", str(tmp_path),
    ]  # fmt: skip
    first = ostta(*arguments)
    assert first.returncode == 0, first.stderr
    path = Path(first.stdout.splitlines()[-1])
    result = read_result(path)
    assert result.counts["desired"] == 40
    assert result.counts["undesired"] == 20
    assert result.options["method"]["losses"] == ["re", "d"]
    assert result.option_sources["method"]["losses"] == "explicit"
    assert result.stream.desired.origin == "generated"
    assert result.records is not None
    assert (tmp_path / result.records).exists()
    written = path.stat().st_mtime_ns
    assert ostta(*arguments).stdout.splitlines()[-1] == str(path)
    assert path.stat().st_mtime_ns == written


def test_run_on_ones_own_folder(tmp_path: Path, photos: Path) -> None:
    for number, image in enumerate(images(16)[::2]):
        folder = tmp_path / "data" / ("cat" if number % 2 else "ship")
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number}.png")
    done = ostta(
        "run", "--desired", f"folder:{tmp_path / 'data'}", "--undesired", f"folder:{photos}", "--method", "zero_shot",
        "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = read_result(Path(done.stdout.splitlines()[-1]))
    assert result.counts["desired"] == result.counts["undesired"] == 8
    assert result.updates == 0


def test_closed_set_has_no_invented_figures(tmp_path: Path) -> None:
    done = ostta(
        "run",
        "--desired",
        "sample:cifar10",
        "--ratio",
        "0",
        "--limit",
        "12",
        "--method",
        "zero_shot",
        "--out",
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    figures = read_result(Path(done.stdout.splitlines()[-1])).metrics
    assert (figures.auroc, figures.hm, figures.acc_undesired) == (None, None, None)
    assert figures.acc_desired is not None


def test_demo_prints_a_table_and_writes_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    done = ostta("demo", "--images", "40", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("zero_shot") < done.stdout.index("rosita")
    assert "…" not in done.stdout
    page = (tmp_path / "report.html").read_text()
    assert page.count('class="chart"') == 6
    assert "Next steps" in page
    assert "http" not in page.replace("http-equiv", "")
    assert len(list(tmp_path.glob("*.json"))) == 3


def test_stream_one_line_an_image_and_resumes(photos: Path, tmp_path: Path) -> None:
    # One at a time: the last bits of a batch depend on its size, and the first list ends within one.
    plain = ["--classes", "cat,dog,ship,truck", "--ahead", "1"]
    arguments = [*plain, "--state", str(tmp_path / "s.ostta")]
    whole = lines(ostta("stream", str(photos), *plain).stdout)
    names = sorted(photos.glob("*.png"))
    listed = tmp_path / "first.txt"
    listed.write_text("\n".join(map(str, names[:12])))
    first = lines(ostta("stream", str(listed), *arguments).stdout)
    second = lines(ostta("stream", "-", *arguments, input="\n".join(map(str, names[12:]))).stdout)
    assert [line["step"] for line in first + second] == list(range(1, 31))

    def bare(line: dict) -> dict:
        return {key: value for key, value in line.items() if key != "ms"}

    assert [bare(line) for line in first + second] == [bare(line) for line in whole]


def test_stream_goes_on_after_a_bad_image(photos: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xff nothing")
    good = sorted(photos.glob("*.png"))[:2]
    listed.write_text(f"{good[0]}\n{tmp_path / 'bad.jpg'}\n{tmp_path / 'absent.png'}\n{good[1]}\n")
    done = ostta("stream", str(listed), "--classes", "cat,dog")
    out = lines(done.stdout)
    assert done.returncode == 0
    assert ["error" in line for line in out] == [False, True, True, False]
    assert [line.get("step") for line in out] == [1, None, None, 2]


def test_stream_problems_are_sentences(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"nothing")
    nothing = ostta("stream", str(tmp_path / "bad.jpg"), "--classes", "cat,dog")
    assert (nothing.returncode, "None of the images" in nothing.stderr) == (1, True)
    state = tmp_path / "s.ostta"
    one = str(sorted(photos.glob("*.png"))[0])
    assert ostta("stream", one, "--classes", "cat,dog", "--state", str(state)).returncode == 0
    kept = state.read_bytes()
    for arguments, words in (
        (["--classes", "cat,ship"], "other classes"),
        (["--classes", "cat,dog", "--method", "tda"], "other method"),
        (["--classes", "cat,dog", "--set", "lr=0.5"], "lr"),
    ):
        done = ostta("stream", one, *arguments, "--state", str(state))
        assert (done.returncode, words in done.stderr) == (1, True), done.stderr
        assert state.read_bytes() == kept
    state.write_bytes(b"junk")
    broken = ostta("stream", one, "--classes", "cat,dog", "--state", str(state))
    assert (broken.returncode, "not a readable state file" in broken.stderr) == (1, True)
    assert state.read_bytes() == b"junk"
    unwritable = ostta("stream", one, "--classes", "cat,dog", "--state", str(tmp_path / "no" / "s.ostta"))
    assert (unwritable.returncode, unwritable.stdout) == (1, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_stream_survives_being_stopped(number: signal.Signals, photos: Path, tmp_path: Path) -> None:
    """SIGTERM saves what was learnt; kill -9 loses at most what came since the last save. Both leave a whole file."""
    from ostta import Adapter

    state = tmp_path / "s.ostta"
    child = subprocess.Popen(
        command("stream", "-", "--classes", "cat,dog", "--state", str(state)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert child.stdin is not None
    assert child.stdout is not None
    for path in sorted(photos.glob("*.png"))[:5]:
        child.stdin.write(f"{path}\n")
        child.stdin.flush()
        assert "verdict" in child.stdout.readline()
    child.send_signal(number)
    if number is signal.SIGTERM:
        # It waits for the next path now, and must not go on waiting.
        assert child.wait(timeout=60) == 0
        assert Adapter.restore(state).steps == 5
    else:
        child.wait(timeout=60)
        assert 1 <= Adapter.restore(state).steps <= 5


@pytest.mark.parametrize("ask", [(signal.SIGTERM,), (signal.SIGTERM, signal.SIGINT, signal.SIGTERM)])
def test_stream_is_not_stopped_in_its_last_save(
    ask: tuple[signal.Signals, ...], photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ostta import Adapter

    state, save = tmp_path / "s.ostta", Adapter.save

    def asked_while_saving(adapter: Adapter, path: Path) -> None:
        if adapter.steps == 30:
            for number in ask:
                signal.raise_signal(number)
        save(adapter, path)

    # Only at the end: otherwise the last image might have been saved already.
    monkeypatch.setattr(state_keeper, "SECONDS", 1e9)
    monkeypatch.setattr(Adapter, "save", asked_while_saving)
    before = signal.getsignal(signal.SIGTERM)
    done = ostta("stream", str(photos), "--classes", "cat,dog", "--state", str(state))
    assert (done.returncode, len(lines(done.stdout))) == (0, 30), done.stderr
    assert Adapter.restore(state).steps == 30
    assert signal.getsignal(signal.SIGTERM) is before


def test_stream_stopped_in_the_middle_of_an_image_finishes_and_saves_it(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ostta import Adapter
    from ostta.memory import Turn
    from ostta.step import Pipeline

    state, conclude = tmp_path / "s.ostta", Pipeline.conclude

    def asked_while_stepping(pipeline: Pipeline, turn: Turn):
        if pipeline.memory.steps == 6:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return conclude(pipeline, turn)

    monkeypatch.setattr(Pipeline, "conclude", asked_while_stepping)
    done = ostta("stream", str(photos), "--classes", "cat,dog", "--state", str(state))
    assert (done.returncode, len(lines(done.stdout))) == (0, 7), done.stderr
    assert Adapter.restore(state).steps == 7


NOT_UTF8 = os.fsdecode(b"caf\xe9.png")


@pytest.mark.parametrize("way", ["folder", "list", "stdin"])
def test_stream_takes_names_that_are_not_utf8(way: str, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    first, second, *_ = sorted(photos.glob("*.png"))
    shutil.copy(first, folder / NOT_UTF8)
    shutil.copy(second, folder / "café.png")
    (folder / os.fsdecode(b"\xff.png")).write_bytes(b"nothing")
    names = sorted(folder.iterdir())
    listed = b"\n".join(map(os.fsencode, names)) + b"\n\n"
    (tmp_path / "list.txt").write_bytes(listed)
    source = {"folder": str(folder), "list": str(tmp_path / "list.txt"), "stdin": "-"}[way]
    # As a terminal or a pipe takes it: strictly.
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
    done = ostta("stream", source, "--classes", "cat,dog", input=listed, stdout=out)
    assert done.returncode == 0, done.stderr
    out.flush()
    raw = out.buffer.getvalue()
    assert b"\\ud" not in raw
    said = lines(raw.decode("utf-8"))
    assert [
        bytes.fromhex(line["image_bytes"]) if "image_bytes" in line else line["image"].encode() for line in said
    ] == [os.fsencode(name) for name in names]
    assert sorted(Path(line["image"]).name for line in said) == ["café.png", "caf\ufffd.png", "\ufffd.png"]
    assert sum("error" in line for line in said) == 1


def test_stream_says_ascii_where_there_is_nothing_else(photos: Path, tmp_path: Path) -> None:
    shutil.copy(sorted(photos.glob("*.png"))[0], tmp_path / "café😀.png")
    out = io.TextIOWrapper(io.BytesIO(), encoding="cp1252", errors="strict")
    done = ostta("stream", str(tmp_path), "--classes", "cat,dog", stdout=out)
    assert done.returncode == 0, done.stderr
    out.flush()
    assert Path(lines(out.buffer.getvalue().decode("ascii"))[0]["image"]).name == "café😀.png"


def test_stream_refuses_a_list_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "list.bin").write_bytes(b"a\0b\n")
    done = ostta("stream", str(tmp_path / "list.bin"), "--classes", "cat,dog")
    assert (done.returncode, "neither an image nor a text file" in done.stderr) == (1, True)


def full() -> TextIO:
    return open("/dev/full", "w", encoding="utf-8")


def without_reader() -> TextIO:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w", encoding="utf-8")


OUTPUTS = [(full, 1, "The output could not be written (No space left on device).\n"), (without_reader, 0, "")]


@pytest.mark.parametrize(("stdout", "code", "words"), OUTPUTS)
def test_stream_that_cannot_print_keeps_its_state(
    stdout: Callable[[], TextIO], code: int, words: str, photos: Path, tmp_path: Path
) -> None:
    from ostta import Adapter

    state = tmp_path / "s.ostta"
    with stdout() as out:
        done = ostta("stream", str(photos), "--classes", "cat,dog", "--state", str(state), stdout=out)
    _choice, _sort, *rest = done.stderr.splitlines(keepends=True)
    assert (done.returncode, "".join(rest)) == (code, words)
    assert Adapter.restore(state).steps == 1


@pytest.mark.parametrize(("stdout", "code", "words"), OUTPUTS)
@pytest.mark.parametrize(
    "arguments", [["ls", "methods"], ["ls", "profiles"], ["--version"], ["--help"], ["bench", "ls"]]
)
def test_every_command_that_cannot_print_says_so_or_is_quiet(
    arguments: list[str], stdout: Callable[[], TextIO], code: int, words: str
) -> None:
    with stdout() as out:
        done = ostta(*arguments, stdout=out)
    assert (done.returncode, done.stderr) == (code, words)


def test_a_problem_is_told_although_the_output_is_full() -> None:
    def problem() -> None:
        with guarded_output():
            print("not written yet")
            raise Error("What came first.")

    with full() as out, redirect_stdout(out), pytest.raises(Error, match=r"What came first\."):
        problem()


def test_no_output_at_all_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own word for an output that was closed before it started."""
    monkeypatch.setattr(sys, "argv", ["ostta", "ls", "methods"])
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code in (0, None)


@pytest.mark.parametrize(
    ("shell", "code", "words"),
    [
        ('"$@" | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}', 0, ""),
        ('"$@" >/dev/full', 1, OUTPUTS[0][2]),
    ],
)
def test_the_process_itself_ends_as_quietly(shell: str, code: int, words: str) -> None:
    """What Python prints and returns when it ends is seen only from outside."""
    done = subprocess.run(
        ["bash", "-c", shell, "bash", *command("ls", "profiles")], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stderr) == (code, words)


# --- lists ------------------------------------------------------------------------------------------------------------
class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ROWS = [("laion/CLIP-ViT-B-32-laion2B-s34B-b79K", "a model with a text that is much too long for one line", "here")]


@pytest.mark.parametrize("width", [20, 40, 62, 80, 160])
def test_an_id_is_never_split_on_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    with redirect_stdout(out):
        print_table("Models", ("model", "what it is", "where"), ROWS)
    printed = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert sum(ROWS[0][0] in line for line in printed) == 1
    assert "much" in out.getvalue()
    if width > 40:
        assert max(map(len, printed)) <= width


def test_a_list_in_a_pipe_is_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = io.StringIO()
    with redirect_stdout(out):
        print_table("Models", ("model", "what it is", "where"), ROWS)
    assert out.getvalue().splitlines()[2] == "  ".join(ROWS[0])
    assert len(out.getvalue().splitlines()) == 3


# --- names before data ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--method", "nope"], "There is no method 'nope'"),
        (["--score", "nope"], "There is no score 'nope'"),
        (["--identifier", "nope"], "There is no identifier 'nope'"),
        (["--backbone", "nope"], "There is no backbone 'nope'"),
        (["--set", "nope=1"], "There is no option 'nope'"),
        (["--set", "lr=quick"], "`lr` must be a number, not 'quick'"),
        (["--corruption", "nope"], "There is no corruption 'nope'"),
        (["--undesired", "nope"], "There is no data set 'nope'"),
    ],
)
def test_names_are_checked_before_data(arguments: list[str], words: str, tmp_path: Path) -> None:
    # There is no folder of data sets, so that the data would be complained about.
    done = ostta("run", "--desired", "cifar10c", "--out", str(tmp_path / "out"), *arguments)
    assert (done.returncode, words in done.stderr, "OSTTA_DATA" in done.stderr) == (1, True, False), done.stderr
