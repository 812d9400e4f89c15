"""A stream that is killed goes on with the next image.

State, journal and output agree, to the answers of a stream that never stopped.
"""

from __future__ import annotations

import csv
import os
import random
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.cases import images
from helpers.command import command, environment
from helpers.errors import raises
from helpers.streaming import contents, killed, lines_of, stream
from ostta import Adapter, Prediction
from ostta.live import answers
from ostta.live import journal as journal_module
from ostta.live.journal import Journal, Progress
from ostta.live.outputs.table import Table
from ostta.live.state_keeper import Keeper
from ostta.memory import Turn
from ostta.state import stored_hash
from ostta.step import Pipeline

CLASSES = ["--classes", "cat,dog,ship,truck"]
COUNT, EVERY = 36, 7
# One that cannot be read, in the middle.
BAD = "015a.png"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number, image in enumerate(images(COUNT)):
        image.save(folder / f"{number:03}.png")
    (folder / BAD).write_bytes(b"nothing")
    return folder


def table(out: Path) -> list[dict[str, str]]:
    with open(out / "predictions.csv", newline="", encoding="utf-8") as file:
        return [{name: cell for name, cell in row.items() if name != "ms"} for row in csv.DictReader(file)]


def bare(line: dict) -> dict:
    return {name: value for name, value in line.items() if name != "ms"}


@pytest.fixture(scope="module")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stream that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    done = stream(photos, *CLASSES, "--state", folder / "s.ostta", "--out", folder / "out", "--save-every", EVERY)
    assert done.code == 0, done.told
    return folder


def require_the_same(found: Path, whole: Path) -> None:
    """Equal state to the last bit, and one row for each image, with the same answer."""
    assert Adapter.restore(found / "s.ostta").steps == COUNT
    assert stored_hash(found / "s.ostta") == stored_hash(whole / "s.ostta")
    assert table(found / "out") == table(whole / "out")
    assert [row["row"] for row in table(found / "out")] == [str(number) for number in range(1, COUNT + 2)]
    assert f"<dt>images</dt><dd>{COUNT + 1}</dd>" in (found / "out" / "report.html").read_text()


def require_few_repeats(printed: list[list[dict]]) -> None:
    """Each start repeats at most what came since the last save; the last line of a row is the one of the table."""
    seen = 0
    for lines in printed:
        assert sum(line["row"] <= seen for line in lines) <= EVERY
        seen = max([seen, *(line["row"] for line in lines)])


# --- killed -----------------------------------------------------------------------------------------------------------
@pytest.mark.slow  # three processes that import everything anew; the deaths below have the same in forked ones
def test_a_process_that_is_killed_twice_ends_as_if_it_never_was(photos: Path, whole: Path, tmp_path: Path) -> None:
    """In processes of their own, by SIGKILL, after so many lines."""
    arguments = [str(photos), *CLASSES, "--state", str(tmp_path / "s.ostta"), "--out", str(tmp_path / "out")]
    printed: list[list[dict]] = []
    for stop in (5, 12, None):
        with (tmp_path / f"{stop}").open("w+") as out:
            child = subprocess.Popen(
                command("stream", *arguments, "--save-every", str(EVERY)),
                stdout=subprocess.PIPE if stop else out,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment(),
            )
            if stop is not None:
                assert child.stdout is not None
                out.writelines(child.stdout.readline() for _ in range(stop))
                child.send_signal(signal.SIGKILL)
                child.stdout.close()
            assert child.wait(timeout=120) == (-signal.SIGKILL if stop else 0)
        printed.append(lines_of(tmp_path / f"{stop}"))
    require_the_same(tmp_path, whole)
    require_few_repeats(printed)
    rows = {line["row"]: bare(line) for lines in printed for line in lines}
    again = stream(photos, *CLASSES, "--out", tmp_path / "other")
    assert [rows.get(number) for number in range(1, COUNT + 2)] == [bare(line) for line in again.lines]


def die() -> None:
    os._exit(9)


def after(kind: type, name: str, times: int) -> Callable[[], None]:
    """Plants a death right after a method was called so many times."""

    def prepare() -> None:
        whole = getattr(kind, name)
        calls = [0]

        def dying(self: object, *arguments: object, **named: object) -> object:
            found = whole(self, *arguments, **named)
            calls[0] += 1
            if calls[0] == times:
                die()
            return found

        setattr(kind, name, dying)

    return prepare


def in_the_middle_of_the_table(times: int) -> Callable[[], None]:
    """Half of the bytes are written."""

    def prepare() -> None:
        calls, write = [0], Table._write

        def half(self: Table, mode: str, content: bytes, size: int = 0) -> None:
            calls[0] += 1
            if calls[0] == times:
                write(self, mode, content[: len(content) // 2], size)
                die()
            write(self, mode, content, size)

        Table._write = half  # type: ignore[method-assign]

    return prepare


MOMENTS = {
    "an image was judged": after(Pipeline, "conclude", 10),
    "the rows were written": after(Journal, "write", 3),
    "the state was saved": after(Adapter, "save", 4),
    "the table was half written": in_the_middle_of_the_table(4),
    "the table was written": after(Table, "add", 3),
    "all was settled": after(Journal, "settle", 3),
    "the first state was made": after(Adapter, "save", 1),
    "the journal's file was made": after(Journal, "__init__", 1),
    "the journal was made": after(Journal, "_begin", 1),
    "the table was begun": in_the_middle_of_the_table(1),
    "the last state was saved": after(Adapter, "save", 8),
    "the last save": after(Keeper, "save", 7),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_death_right_after_something(moment: str, photos: Path, whole: Path, tmp_path: Path) -> None:
    arguments = [photos, *CLASSES, "--state", tmp_path / "s.ostta", "--out", tmp_path / "out", "--sort", "copy"]
    arguments += ["--save-every", EVERY]
    first = tmp_path / "first.jsonl"
    assert os.waitstatus_to_exitcode(killed(arguments, first, MOMENTS[moment])) == 9
    done = stream(*arguments)
    assert done.code == 0, done.told
    require_the_same(tmp_path, whole)
    require_few_repeats([lines_of(first), done.lines])
    # Each image that has an answer is in one place.
    assert sum(path.is_file() for path in (tmp_path / "out" / "sorted").rglob("*")) == COUNT


def random_moments(count: int, photos: Path, whole: Path, folder: Path, seed: int) -> None:
    arguments: list[object] = [photos, *CLASSES, "--state", folder / "s.ostta", "--out", folder / "out"]
    arguments += ["--save-every", EVERY]
    rng, printed = random.Random(seed), []
    for number in range(count):
        killed(arguments, folder / f"{number}.jsonl", lambda: None, after=rng.uniform(0.05, 0.6))
        printed.append(lines_of(folder / f"{number}.jsonl") if (folder / f"{number}.jsonl").exists() else [])
    done = stream(*arguments)
    assert done.code == 0, done.told
    require_the_same(folder, whole)
    require_few_repeats([*printed, done.lines])


def test_two_deaths_at_random_moments(photos: Path, whole: Path, tmp_path: Path) -> None:
    random_moments(2, photos, whole, tmp_path, seed=0)


@pytest.mark.slow  # ten processes, five times over, each of which needs a while to live
@pytest.mark.parametrize("seed", range(1, 6))
def test_ten_deaths_at_random_moments(seed: int, photos: Path, whole: Path, tmp_path: Path) -> None:
    random_moments(10, photos, whole, tmp_path, seed)


# --- what is judged again, and what is not ----------------------------------------------------------------------------
def test_judged_images_are_left_out_and_changed_ones_are_not(photos: Path, tmp_path: Path) -> None:
    folder, state = tmp_path / "photos", tmp_path / "s.ostta"
    shutil.copytree(photos, folder)
    first = stream(folder, *CLASSES, "--state", state)
    assert len(first.lines) == COUNT + 1
    again = stream(folder, *CLASSES, "--state", state)
    assert (again.code, again.lines) == (0, [])
    assert "Nothing new: 37 images were judged before" in again.told
    os.utime(folder / "003.png", (1e9, 1e9))
    (folder / BAD).write_bytes((folder / "004.png").read_bytes())
    shutil.copy(folder / "000.png", folder / "zzz.png")
    third = stream(folder, "--state", state)
    assert [(Path(line["image"]).name, line["row"], line["step"]) for line in third.lines] == [
        ("003.png", 38, 37),
        (BAD, 39, 38),
        ("zzz.png", 40, 39),
    ]


def test_an_image_that_is_listed_twice_counts_once_for_a_state(photos: Path, tmp_path: Path) -> None:
    """Else the answers after a crash would not be those without one."""
    state, listed = tmp_path / "s.ostta", f"{photos}/000.png\n{photos}/001.png\n{photos}/000.png\n".encode()
    first = stream("-", *CLASSES, "--state", state, given=listed)
    assert [line["row"] for line in first.lines] == [1, 2]
    assert "1 image was judged before" in first.told
    assert stream("-", "--state", state, given=listed).lines == []
    # Without a state nothing is known.
    assert len(stream("-", *CLASSES, given=listed).lines) == 3


def test_rows_that_nobody_can_ask_for_do_not_stay(tmp_path: Path) -> None:
    """As a camera's, whose images have no key."""
    path = tmp_path / "s.ostta.journal"
    journal = Journal.opened(path)
    journal.resume(tmp_path / "s.ostta", 0, "a")
    sizes = []
    for step in range(1, 2001):
        journal.add(step, "", None, {"image": f"camera#{step}", "label": "cat"})
        if step % 100 == 0:
            journal.write(step)
            journal.settle(step, "a", None, Progress(), {})
            sizes.append(path.stat().st_size)
    assert sizes[-1] == sizes[1]
    assert (journal.last, list(journal.rows(after=0))) == (2000, [])
    journal.close()
    again = Journal.opened(path)
    again.resume(tmp_path / "s.ostta", 2000, "a")
    assert again.add(2001, "", None, {"image": "camera"}).number == 2001


# --- what cannot be gone on with --------------------------------------------------------------------------------------
def made(photos: Path, folder: Path, count: int, *more: object) -> Path:
    folder.mkdir(exist_ok=True)
    listed = "".join(f"{path}\n" for path in sorted(photos.glob("*.png"))[:count]).encode()
    state = folder / "s.ostta"
    assert stream("-", *CLASSES, "--state", state, *more, given=listed).code == 0
    return state


def another_state(folder: Path, photos: Path) -> None:
    other = made(photos, folder.parent / "other", 5)
    shutil.copy(other, folder / "s.ostta")


def an_older_state(folder: Path, photos: Path) -> None:
    one = Adapter.restore(folder / "s.ostta")
    one.reset()
    one.save(folder / "s.ostta")


def no_state(folder: Path, photos: Path) -> None:
    (folder / "s.ostta").unlink()


def junk(folder: Path, photos: Path) -> None:
    (folder / "s.ostta.journal").write_bytes(b"junk" * 1000)


def a_part(folder: Path, photos: Path) -> None:
    path = folder / "s.ostta.journal"
    path.write_bytes(path.read_bytes()[:9000])


def a_hole(folder: Path, photos: Path) -> None:
    path = folder / "s.ostta.journal"
    content = bytearray(path.read_bytes())
    content[4096:8192] = bytes(4096)
    path.write_bytes(content)


def another_database(folder: Path, photos: Path) -> None:
    (folder / "s.ostta.journal").unlink()
    with sqlite3.connect(folder / "s.ostta.journal") as other:
        other.execute("CREATE TABLE songs (name TEXT)")
    other.close()


def a_later_format(folder: Path, photos: Path) -> None:
    with sqlite3.connect(folder / "s.ostta.journal") as own:
        own.execute("PRAGMA user_version = 9")
    own.close()


def a_trap(folder: Path, photos: Path) -> None:
    with sqlite3.connect(folder / "s.ostta.journal") as own:
        own.execute("CREATE TRIGGER trap AFTER INSERT ON rows BEGIN DELETE FROM rows; END")
    own.close()


def a_folder(folder: Path, photos: Path) -> None:
    (folder / "s.ostta.journal").unlink()
    (folder / "s.ostta.journal").mkdir()


PROBLEMS = {
    another_state: "belongs to another state",
    an_older_state: "belongs to another state",
    no_state: "but not the state file",
    junk: "not a journal of ostta",
    a_part: "is damaged",
    a_hole: "is damaged",
    another_database: "not a journal of ostta",
    a_later_format: "has format 9",
    a_trap: "is damaged",
    a_folder: "not an ordinary file",
}


@pytest.mark.parametrize("spoil", PROBLEMS, ids=lambda spoil: spoil.__name__)
def test_what_cannot_be_gone_on_with_is_one_sentence_and_changes_nothing(
    spoil: Callable[[Path, Path], None], photos: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    state = made(photos, folder, 8)
    spoil(folder, photos)
    before = contents(folder)
    done = stream(photos, *CLASSES, "--state", state)
    assert (done.code, done.lines) == (1, [])
    assert PROBLEMS[spoil] in done.told
    assert len(done.told.splitlines()) == 1
    assert contents(folder) == before


def test_a_journal_is_one_programs_at_a_time(photos: Path, tmp_path: Path) -> None:
    state = made(photos, tmp_path, 3)
    held, before = Journal.opened(Journal.beside(state)), contents(tmp_path)
    done = stream(photos, *CLASSES, "--state", state)
    assert (done.code, done.lines, "in use by another program" in done.told) == (1, [], True)
    assert contents(tmp_path) == before
    held.close()
    assert stream(photos, "--state", state).code == 0


def test_two_programs_on_one_new_state(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one starts while the first is still loading its model."""
    arguments = [photos / "000.png", photos / "001.png", *CLASSES, "--state", tmp_path / "s.ostta"]
    opened, second = answers.open_adapter, tmp_path / "second.jsonl"

    def slow(*given: Any) -> Adapter:
        with monkeypatch.context() as patch:
            patch.setattr(answers, "open_adapter", opened)
            killed(arguments, second, lambda: None)
        return opened(*given)

    with monkeypatch.context() as patch:
        patch.setattr(answers, "open_adapter", slow)
        first = stream(*arguments)
    # One of them processed all images, and the other one none.
    assert sorted([len(first.lines), len(lines_of(second))]) == [0, 2]
    again = stream(*arguments)
    assert (again.code, again.lines) == (0, [])
    assert Adapter.restore(tmp_path / "s.ostta").steps == 2


def test_a_state_that_fails_to_open_leaves_no_file(photos: Path, tmp_path: Path) -> None:
    assert stream(photos, "--state", tmp_path / "s.ostta").code == 1
    assert contents(tmp_path) == {}


def test_a_journal_that_was_deleted_before_it_was_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, connected = tmp_path / "s.ostta.journal", journal_module._connected

    def late(name: str) -> sqlite3.Connection:
        connection = connected(name)
        path.rename(tmp_path / "moved")
        return connection

    monkeypatch.setattr(journal_module, "_connected", late)
    with raises("file-in-use"):
        Journal.opened(path)


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_to_a_state_is_the_state(exists: bool, photos: Path, tmp_path: Path) -> None:
    kept, elsewhere = tmp_path / "kept", tmp_path / "elsewhere"
    kept.mkdir(), elsewhere.mkdir()
    state, link = kept / "s.ostta", elsewhere / "link.ostta"
    link.symlink_to(state)
    if exists:
        made(photos, kept, 1)
    both = (photos / "000.png", photos / "001.png")
    assert len(stream(*both, *CLASSES, "--state", link).lines) == 2 - exists
    again = stream(*both, "--state", state)
    assert (again.code, again.lines) == (0, [])
    assert link.is_symlink()
    assert list(elsewhere.iterdir()) == [link]


def test_a_folder_without_room_for_a_journal_is_left_as_it_was(photos: Path, tmp_path: Path) -> None:
    # SQLite cannot make its own file beside the journal; unlike a mode, that stops every user.
    (tmp_path / "s.ostta.journal-journal").mkdir()
    before = sorted(tmp_path.iterdir())
    done = stream(photos, *CLASSES, "--state", tmp_path / "s.ostta")
    assert (done.code, done.lines) == (1, [])
    assert "could not be read or written" in done.told
    assert len(done.told.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_keeps_the_last_save(
    photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected = journal_module._connected

    def small(name: str) -> sqlite3.Connection:
        connection = connected(name)
        connection.execute("PRAGMA max_page_count = 14")
        return connection

    arguments = [photos, *CLASSES, "--state", tmp_path / "s.ostta", "--out", tmp_path / "out", "--save-every", EVERY]
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_connected", small)
        done = stream(*arguments)
    choice, *_, problem = done.told.splitlines()
    assert (done.code, "database or disk is full" in problem, choice[:9]) == (1, True, "Backbone ")
    steps = Adapter.restore(tmp_path / "s.ostta").steps
    assert 0 < steps < COUNT
    assert sum(row["step"] != "" for row in table(tmp_path / "out")) == steps
    assert stream(*arguments).code == 0
    require_the_same(tmp_path, whole)


def without_journal(folder: Path) -> None:
    (folder / "s.ostta.journal").unlink()


def with_another_journal(folder: Path) -> None:
    path = folder / "s.ostta.journal"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)


def with_a_cut_table(folder: Path) -> None:
    os.truncate(folder / "out" / "predictions.csv", 300)


def without_table(folder: Path) -> None:
    (folder / "out" / "predictions.csv").unlink()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (without_journal, "was deleted or replaced while the stream was running"),
        (with_another_journal, "was deleted or replaced while the stream was running"),
        (with_a_cut_table, "was changed or deleted by another program"),
        (without_table, "was changed or deleted by another program"),
    ],
)
def test_files_that_are_spoiled_while_a_stream_runs(
    spoil: Callable[[Path], None], sentence: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, conclude, state = [0], Pipeline.conclude, tmp_path / "s.ostta"

    def spoiling(self: Pipeline, turn: Turn) -> Prediction:
        calls[0] += 1
        if calls[0] == 6:
            spoil(tmp_path)
        return conclude(self, turn)

    monkeypatch.setattr(Pipeline, "conclude", spoiling)
    done = stream(photos, *CLASSES, "--state", state, "--out", tmp_path / "out", "--save-every", 2)
    choice, *_, problem = done.told.splitlines()
    assert (done.code, sentence in problem, choice[:9]) == (1, True, "Backbone ")
    # What was saved before is whole, and a table that is gone is made again.
    assert Adapter.restore(state).steps >= 4
    assert (tmp_path / "out" / "predictions.csv").exists() == (spoil is not without_table)


# --- output folders ---------------------------------------------------------------------------------------------------
def test_a_folder_that_comes_later_has_all_rows(photos: Path, whole: Path, tmp_path: Path) -> None:
    made(photos, tmp_path, 20)
    done = stream(photos, "--state", tmp_path / "s.ostta", "--out", tmp_path / "out", "--draw")
    assert (done.code, len(done.lines)) == (0, COUNT - 19)
    # Images from a list on standard input are encoded one at a time, those of the folder in batches.
    for found, expected in zip(table(tmp_path / "out"), table(whole / "out"), strict=True):
        for name in ("score", "threshold", "probability"):
            one, other = (float(row.pop(name) or "nan") for row in (found, expected))
            assert one == pytest.approx(other, rel=1e-5, abs=1e-5, nan_ok=True)
        assert found == expected
    assert len(list((tmp_path / "out" / "drawn").iterdir())) == COUNT


def test_a_folder_of_another_stream_is_refused(photos: Path, tmp_path: Path) -> None:
    made(photos, tmp_path / "one", 3, "--out", tmp_path / "out")
    before = contents(tmp_path)
    for more in ([], ["--state", tmp_path / "new.ostta"]):
        done = stream(photos, *CLASSES, "--out", tmp_path / "out", *more)
        assert (done.code, "another stream" in done.told, done.lines) == (1, True, [])
        assert contents(tmp_path) == before


def test_a_table_that_somebody_changed_is_refused(photos: Path, tmp_path: Path) -> None:
    state = made(photos, tmp_path / "one", 3, "--out", tmp_path / "out")
    path = tmp_path / "out" / "predictions.csv"
    path.write_bytes(path.read_bytes().replace(b"row,", b"line,"))
    before = contents(tmp_path)
    done = stream(photos, "--state", state, "--out", tmp_path / "out")
    assert (done.code, "was changed or deleted by another program" in done.told, contents(tmp_path) == before) == (
        1,
        True,
        True,
    )


def test_state_and_folder_can_move_together(photos: Path, tmp_path: Path) -> None:
    made(photos, tmp_path / "one", 3, "--out", tmp_path / "one" / "out")
    shutil.move(tmp_path / "one", tmp_path / "two")
    done = stream(photos, "--state", tmp_path / "two" / "s.ostta", "--out", tmp_path / "two" / "out")
    assert (done.code, len(table(tmp_path / "two" / "out"))) == (0, COUNT + 1)
