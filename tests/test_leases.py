"""One writer for each session: leases, their numbers, and what becomes of a writer that was paused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ostta import Error
from ostta.server.cluster import holder as holder_module
from ostta.server.cluster import leases
from ostta.server.cluster.holder import Holder
from ostta.server.cluster.leases import HeldError, MissingError, StaleError, Token, create, read, take


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def holders(tmp_path: Path) -> Iterator[Callable[[str], tuple[Holder, Clock]]]:
    made = []

    def make(name: str) -> tuple[Holder, Clock]:
        clock = Clock()
        made.append(Holder(tmp_path / "holders", name, term=10, clock=clock))
        return made[-1], clock

    yield make
    for each in made:
        each.close()


def test_a_lease_that_is_given_back_can_be_taken_at_once(tmp_path: Path, holders) -> None:
    (one, _), (other, _) = holders("one"), holders("other")
    lease = create(tmp_path / "door", one, {"state": b"0", "about": b"door"})
    with pytest.raises(HeldError, match="The session door is held by one, which lives") as refused:
        take(tmp_path / "door", other)
    assert refused.value.holder == "one"
    with pytest.raises(HeldError, match="already"):
        take(tmp_path / "door", one)
    lease.save({"state": b"1"})
    assert read(tmp_path / "door") == {"state": b"1", "about": b"door"}
    lease.release()
    assert not lease.is_held()
    second = take(tmp_path / "door", other)
    assert (second.number, read(tmp_path / "door")["state"]) == (2, b"1")
    with pytest.raises(StaleError, match="another writer since lease 1"):
        lease.save({"state": b"2"})
    assert read(tmp_path / "door")["state"] == b"1"
    # Nothing of the refused snapshot is left, and nothing of old ones.
    second.save({"state": b"3"})
    assert sorted(os.listdir(tmp_path / "door")) == [
        "0000000002-0000000001.about", "0000000002-0000000001.state", f"token.0000000002.{other.key}.0000000002-0000000001",
    ]  # fmt: skip


def test_a_holder_that_is_silent_for_a_term_loses_its_sessions(tmp_path: Path, holders) -> None:
    (one, _), (other, clock) = holders("one"), holders("other")
    lease = create(tmp_path / "door", one, {"state": b"0"})
    for _ in range(3):  # it beats, however long it takes
        other.beat()
        clock.now += 9
        one.beat()
        with pytest.raises(HeldError):
            take(tmp_path / "door", other)
    clock.now += 9.9
    with pytest.raises(HeldError):
        take(tmp_path / "door", other)
    clock.now += 0.2
    assert take(tmp_path / "door", other).number == 2
    one.beat()  # it wakes up
    with pytest.raises(StaleError):
        lease.save({"state": b"late"})
    assert read(tmp_path / "door") == {"state": b"0"}


@pytest.mark.parametrize("jump", [-1e9, -5.0])
def test_a_clock_that_jumps_back_takes_nothing_and_loses_nothing(tmp_path: Path, holders, jump: float) -> None:
    (one, old), (other, clock) = holders("one"), holders("other")
    lease = create(tmp_path / "door", one, {"state": b"0"})
    other.beat()
    clock.now += 9
    clock.now += jump
    old.now += jump
    one.beat()
    with pytest.raises(HeldError):
        take(tmp_path / "door", other)
    lease.save({"state": b"1"})  # the clock of who holds it does not matter
    clock.now += jump
    with pytest.raises(HeldError):  # the watching begins anew, and ends
        take(tmp_path / "door", other)
    clock.now += 10
    assert take(tmp_path / "door", other).number == 2
    assert read(tmp_path / "door") == {"state": b"1"}


def test_only_one_of_two_takes_a_free_lease(tmp_path: Path, holders) -> None:
    (one, _), (other, _) = holders("one"), holders("other")
    create(tmp_path / "door", one, {"state": b"0"}).release()
    known = leases.current(tmp_path / "door")
    assert leases.exchange(tmp_path / "door", known, Token(2, one.key, known.snapshot))
    assert not leases.exchange(tmp_path / "door", known, Token(2, other.key, known.snapshot))
    # The same exchange again, as a network file system repeats it when an answer was lost: it has been done.
    assert leases.exchange(tmp_path / "door", known, Token(2, one.key, known.snapshot))


def test_a_session_that_is_deleted_stays_so(tmp_path: Path, holders) -> None:
    (one, _), (other, clock) = holders("one"), holders("other")
    stale = create(tmp_path / "door", one, {"state": b"0"})
    other.beat()
    clock.now += 10
    take(tmp_path / "door", other).delete()
    assert not (tmp_path / "door").exists()
    for act in (lambda: take(tmp_path / "door", one), lambda: read(tmp_path / "door")):
        with pytest.raises(MissingError, match="no session door"):
            act()
    with pytest.raises(StaleError):
        stale.save({"state": b"1"})
    stale.release()
    assert sorted(os.listdir(tmp_path)) == ["holders"]


def test_a_lease_is_held_while_it_is_written(tmp_path: Path, holders, monkeypatch) -> None:
    """Saving is another thread's work. The name of the token changes then, and is no sign that the lease was lost."""
    one, _ = holders("one")
    lease, seen = create(tmp_path / "door", one, {"state": b"0"}), []
    exchange = leases.exchange

    def slow(*given: object) -> bool:
        done = exchange(*given)
        asked = threading.Thread(target=lambda: seen.append(lease.is_held()))
        asked.start()
        asked.join(0.05)
        return done

    monkeypatch.setattr(leases, "exchange", slow)
    lease.save({"state": b"1"})
    for _ in range(100):
        if seen:
            break
        threading.Event().wait(0.01)
    assert seen == [True]


def test_a_disk_that_is_full_changes_nothing(tmp_path: Path, holders, monkeypatch) -> None:
    one, _ = holders("one")
    lease = create(tmp_path / "door", one, {"state": b"0"})
    before = sorted(os.listdir(tmp_path / "door"))

    def full(path: Path, content: bytes) -> None:
        path.write_bytes(content[:1])
        raise Error(f"{path} could not be written (No space left on device).")

    with monkeypatch.context() as patched:
        patched.setattr(leases, "write_atomically", full)
        with pytest.raises(Error, match="No space left"):
            lease.save({"state": b"11"})
        with pytest.raises(Error, match="No space left"):
            create(tmp_path / "yard", one, {"state": b"0"})
    assert sorted(os.listdir(tmp_path / "door")) == before
    assert not (tmp_path / "yard").exists()
    lease.save({"state": b"2"})
    assert read(tmp_path / "door") == {"state": b"2"}


def test_a_file_system_without_links_or_locks_will_do(tmp_path: Path, holders, monkeypatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(leases.os, "link", refused)
    monkeypatch.setattr(holder_module, "_flock", lambda: None)
    (one, _), (other, clock) = holders("one"), holders("other")
    lease = create(tmp_path / "door", one, {"state": b"0", "about": b"door"})
    lease.save({"state": b"1"})
    assert read(tmp_path / "door") == {"state": b"1", "about": b"door"}
    other.beat()
    clock.now += 10
    assert take(tmp_path / "door", other).number == 2


def test_what_a_killed_process_leaves(tmp_path: Path, holders) -> None:
    """SIGKILL: under the same kernel it is seen at once, and what was half written is taken away."""
    code = (
        "import sys; from pathlib import Path\n"
        "from ostta.server.cluster.holder import Holder\n"
        "from ostta.server.cluster.leases import create\n"
        "folder = Path(sys.argv[1])\n"
        "create(folder / 'door', Holder(folder / 'holders', 'killed').start(), {'state': b'0'})\n"
        "(folder / 'door' / '.0000000001-0000000001.state.12ab.partial').write_bytes(b'half')\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    one, _ = holders("one")
    with pytest.raises(HeldError, match="held by killed"):
        take(tmp_path / "door", one)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    lease = take(tmp_path / "door", one)  # no clock has moved
    assert lease.number == 2
    lease.save({"state": b"1"})
    assert len(os.listdir(tmp_path / "door")) == 2
    assert os.listdir(tmp_path / "holders") == [one.key]


def test_a_holder_beats_in_the_background(tmp_path: Path) -> None:
    holder = Holder(tmp_path, "one", term=0.05).start()
    path, first = tmp_path / holder.key, (tmp_path / holder.key).read_bytes()
    for _ in range(500):
        if path.read_bytes() != first:
            break
        threading.Event().wait(0.01)
    assert path.read_bytes()[20:] == first[20:]
    assert path.read_bytes()[:20] > first[:20]
    holder.close()
    assert os.listdir(tmp_path) == []
    with pytest.raises(Error, match="above 0, not 0"):
        Holder(tmp_path, "one", term=0)


def test_damaged_files_of_holders(tmp_path: Path, holders) -> None:
    one, clock = holders("one")
    for name, content in (
        ("a", b""),
        ("b", b"\xff" * 30),
        ("c", b"0" * 20 + b"[1]"),
        ("d", b"0" * 20 + b'{"kernel": 3}'),
    ):
        (tmp_path / "holders" / name).write_bytes(content)
        assert not one.is_gone(name)
        assert one.name_of(name) == name
        clock.now += 10
        assert one.is_gone(name)


# --- interleavings ------------------------------------------------------------------------------------------------------------
class Turns:
    """Writers in threads of which one moves at a time, from one file operation to its next."""

    def __init__(self, count: int) -> None:
        self._mine = threading.local()
        self._go = [threading.Semaphore(0) for _ in range(count)]
        self._back = threading.Semaphore(0)
        self._free = False

    def gate(self) -> None:
        number = getattr(self._mine, "number", None)
        if number is not None and not self._free:
            self._back.release()
            self._go[number].acquire()

    def start(self, number: int, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            self._mine.number = number
            self._go[number].acquire()
            try:
                work()
            finally:
                self._mine.number = None
                while not self._free:
                    self._back.release()
                    self._go[number].acquire()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def move(self, number: int) -> None:
        self._go[number].release()
        self._back.acquire()

    def finish(self) -> None:
        self._free = True
        for go in self._go:
            go.release()


def interleave(folder: Path, schedule: list[tuple[str, int, int]], writers: int = 3) -> list[tuple[int, int]]:
    """Three writers that take, load, add one and save, as the schedule moves them; every accepted (number, value), in order."""
    turns, clocks = Turns(writers), [Clock() for _ in range(writers)]
    holders = [Holder(folder / "holders", str(number), term=10, clock=clocks[number]) for number in range(writers)]
    session, accepted, problems = folder / "door", [], []
    create(session, holders[0], {"value": b"0"}).release()

    noting = threading.Lock()

    def rename(old: Path, new: Path) -> None:
        turns.gate()
        # In one step with its note: in the end the writers run at the same time.
        with noting:
            os.rename(old, new)
            before, after = Token.of(Path(old).name), Token.of(Path(new).name)
            if before and after and before.snapshot != after.snapshot:
                accepted.append((after.number, int((session / f"{after.snapshot}.value").read_bytes())))

    def gated(function: Callable) -> Callable:
        def called(*arguments: object) -> object:
            turns.gate()
            return function(*arguments)

        return called

    def write(path: Path, content: bytes) -> None:
        turns.gate()
        try:
            path.write_bytes(content)
        except OSError as problem:
            raise Error(str(problem)) from None

    def work(number: int) -> None:
        try:
            for _ in range(4):
                try:
                    lease = take(session, holders[number])
                    value = int(read(session)["value"])
                    for _ in range(3):
                        lease.save({"value": str(value + 1).encode()})
                        value += 1
                    lease.release()
                except (HeldError, StaleError):
                    turns.gate()
        except BaseException as problem:
            problems.append(problem)

    plain = leases.os, leases.write_atomically
    leases.os = SimpleNamespace(
        rename=rename, listdir=gated(os.listdir), link=gated(os.link), unlink=gated(os.unlink), path=os.path,
        open=os.open, close=os.close, fsync=lambda _: None, O_RDONLY=os.O_RDONLY,
    )  # fmt: skip
    leases.write_atomically = write
    try:
        threads = [turns.start(number, lambda number=number: work(number)) for number in range(writers)]
        for kind, number, amount in schedule:
            if kind == "move":
                for _ in range(amount):
                    turns.move(number)
            elif kind == "beat":
                holders[number].beat()
            else:
                clocks[number].now += amount
        turns.finish()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
    finally:
        leases.os, leases.write_atomically = plain
        turns.finish()
        for holder in holders:
            holder.close()
    assert not problems, problems
    # All is one history: numbers never fall, and each accepted value was made from the accepted one before it.
    assert [number for number, _ in accepted] == sorted(number for number, _ in accepted)
    assert [value for _, value in accepted] == list(range(1, len(accepted) + 1))
    assert int(read(session)["value"]) == len(accepted)
    return accepted


WRITER = st.integers(0, 2)
EVENTS = st.one_of(
    st.tuples(st.just("move"), WRITER, st.integers(1, 12)),
    st.tuples(st.just("move"), WRITER, st.integers(1, 12)),
    st.tuples(st.just("beat"), WRITER, st.just(0)),
    st.tuples(st.just("clock"), WRITER, st.integers(-30, 30)),
)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(EVENTS, min_size=5, max_size=60))
def test_never_two_accepted_writes_out_of_order(schedule: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        interleave(Path(folder), schedule)


# Writer 0 takes the lease and is paused inside its first save. For 1 it is silent for a term, so that 1 takes it and saves. Then 0 goes on.
PAUSED = [("move", 0, 7), ("move", 1, 4), ("clock", 1, 11), ("move", 1, 12), ("move", 0, 9)]


def test_the_schedules_do_meet_a_stale_writer(tmp_path: Path, monkeypatch) -> None:
    """What the test above would find, were a writer accepted without the comparison."""
    seen = []
    lost = leases.Lease._lost
    monkeypatch.setattr(leases.Lease, "_lost", lambda lease: seen.append(lease.number) or lost(lease))
    accepted = interleave(tmp_path / "right", PAUSED)
    assert seen == [2]
    assert {number for number, _ in accepted} > {3}

    def careless(folder: Path, known: Token, wanted: Token) -> bool:
        if not os.path.exists(folder / known.name):
            (folder / known.name).touch()
        leases.os.rename(folder / known.name, folder / wanted.name)
        return True

    monkeypatch.setattr(leases, "exchange", careless)
    with pytest.raises(AssertionError):
        interleave(tmp_path / "wrong", PAUSED)
