"""Getting data sets, from a server in this process that can be told to break off, to change a file, or to ignore
ranges.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import json
import lzma
import shutil
import socket
import struct
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.errors import raises
from ostta.core.types import Error
from ostta.data.by_name import open_dataset
from ostta.data.catalogue import CATALOGUE
from ostta.data_tools import addresses, get, transfer, unpack
from ostta.data_tools.addresses import Download
from ostta.data_tools.get import get_dataset


class Server(ThreadingHTTPServer):
    """Files by path. `break_after` cuts each answer after so many bytes, as often as `breaks` says."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content: dict[str, bytes] = {}
        self.break_after, self.breaks, self.ranges = 0, 0, True
        self.asked: list[tuple[str, str | None]] = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def put(self, path: str, content: bytes) -> str:
        self.content[path] = content
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Range")))
        content = self.server.content.get(self.path)
        if content is None:
            self.send_error(404)
            return
        etag = f'"{hashlib.sha256(content).hexdigest()[:8]}"'
        start = 0
        wanted = self.headers.get("Range")
        if wanted and self.server.ranges and self.headers.get("If-Range", etag) == etag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("ETag", etag)
        self.end_headers()
        end = len(content)
        if self.server.breaks:
            self.server.breaks -= 1
            end = min(end, start + self.server.break_after)
        self.wfile.write(content[start:end])
        if end < len(content):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    running = Server()
    yield running
    running.shutdown()
    running.server_close()


def random_bytes(count: int) -> bytes:
    return np.random.default_rng(count).bytes(count)


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


# --- one file


def test_a_file(server: Server, tmp_path: Path) -> None:
    content = random_bytes(3_000_000)
    told: list[tuple[int, int | None]] = []
    transfer.fetch(server.put("/a", content), tmp_path / "a", lambda done, total: told.append((done, total)))
    assert (tmp_path / "a").read_bytes() == content
    assert told[-1] == (3_000_000, 3_000_000)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_broken_transfer_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    content = random_bytes(500_000)
    server.break_after, server.breaks = 200_000, 2
    transfer.fetch(server.put("/a", content), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == content
    ranges = [wanted for _, wanted in server.asked]
    assert ranges[0] is None
    assert len(ranges) == 3
    assert all(wanted is not None and int(wanted[6:-1]) > 0 for wanted in ranges[1:])


def test_a_later_call_goes_on_too(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = random_bytes(500_000)
    url = server.put("/a", content)
    monkeypatch.setattr(transfer, "_ATTEMPTS", 1)
    server.break_after, server.breaks = 200_000, 1
    with raises("download-failed"):
        transfer.fetch(url, tmp_path / "a")
    assert not (tmp_path / "a").exists()
    kept = (tmp_path / "a.part").read_bytes()
    assert 0 < len(kept) < len(content)
    assert content.startswith(kept)
    transfer.fetch(url, tmp_path / "a")
    assert server.asked[-1][1] == f"bytes={len(kept)}-"
    assert (tmp_path / "a").read_bytes() == content


def test_a_file_that_changed_in_between_is_begun_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.put("/a", b"old" * 100_000)
    monkeypatch.setattr(transfer, "_ATTEMPTS", 1)
    server.break_after, server.breaks = 100_000, 1
    with raises("download-failed"):
        transfer.fetch(url, tmp_path / "a")
    server.put("/a", b"new" * 100_000)
    transfer.fetch(url, tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new" * 100_000


def test_parts_that_are_whole_or_too_long(server: Server, tmp_path: Path) -> None:
    url = server.put("/a", b"0123456789")
    (tmp_path / "a.part").write_bytes(b"0123456789")
    transfer.fetch(url, tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"0123456789"
    (tmp_path / "b.part").write_bytes(b"0123456789 and more")
    transfer.fetch(url, tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"0123456789"


def test_a_server_without_ranges(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(b"01234")
    server.ranges = False
    transfer.fetch(server.put("/a", b"0123456789"), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_network_problems_are_one_sentence(server: Server, tmp_path: Path) -> None:
    with raises("download-failed", match=r"/absent .*404 Not Found\.$"):
        transfer.fetch(f"http://127.0.0.1:{server.server_port}/absent", tmp_path / "a")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with raises("download-failed", match=r"Connection refused\.$"):
            transfer.fetch(f"http://127.0.0.1:{port}/a", tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = server.put("/a", random_bytes(2_000_000))
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
        with raises("disk-full", match=r"0\.0 GB of free space, but 0\.0 GB are needed"):
            transfer.fetch(url, tmp_path / "a")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full_after(1, Path.open))
        with raises("disk-full"):
            transfer.fetch(url, tmp_path / "a")
    assert not (tmp_path / "a").exists()
    transfer.fetch(url, tmp_path / "a")
    assert (tmp_path / "a").stat().st_size == 2_000_000


def full_after(writes: int, opener: Callable[..., object]) -> Callable[..., object]:
    """`Path.open` whose files take so many writes and then find the disk full."""

    def opened(path: Path, mode: str = "r", *rest: object, **options: object) -> object:
        file = opener(path, mode, *rest, **options)
        if "r" in mode:
            return file
        left = [writes]
        write = file.write

        def limited(content: bytes) -> int:
            if not left[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            left[0] -= 1
            return int(write(content))

        return Wrapped(file, limited)

    return opened


class Wrapped:
    def __init__(self, file: object, write: Callable[[bytes], int]) -> None:
        self.file, self.write = file, write

    def __enter__(self) -> Wrapped:
        return self

    def __exit__(self, *arguments: object) -> None:
        self.file.close()


# --- unpacking


def tar_of(files: dict[str, bytes | str]) -> bytes:
    """A tar archive; a text is the target of a link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("form", ["tar", "zip"])
def test_archives(tmp_path: Path, form: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    files = {"clipart/a/1.jpg": b"one", "clipart/b/2.jpg": b"two", "__MACOSX/x": b"no"}
    archive = tmp_path / "it"
    archive.write_bytes(tar_of(dict(files)) if form == "tar" else zip_of(files))
    unpack.unpack(archive, form, root, ("domainnet/clipart",))
    assert tree(root) == {"domainnet/clipart/a/1.jpg": b"one", "domainnet/clipart/b/2.jpg": b"two"}
    with raises("archive-damaged", match="'sketch'"):
        unpack.unpack(archive, form, root, ("domainnet/sketch",))
    # The first member of a tar begins after a block of 512; a zip archive has its table at the end.
    archive.write_bytes(archive.read_bytes()[: 513 if form == "tar" else -10])
    with raises("archive-damaged"):
        unpack.unpack(archive, form, root, ("other/clipart",))
    assert sorted(path.name for path in root.iterdir()) == ["domainnet"]


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("tar", tar_of({"a/x": b"1", "../evil": b"2"})),
        ("tar", tar_of({"a/x": b"1", "a/../../evil": b"2"})),
        ("tar", tar_of({"a/x": b"1", "/tmp/evil": b"2"})),
        ("tar", tar_of({"a/x": b"1", "a/link": "/etc"})),
        ("zip", zip_of({"a/x": b"1", "../evil": b"2"})),
        ("zip", zip_of({"a/x": b"1", "a\\..\\evil": b"2"})),
        ("zip", zip_of({"a/x": b"1", "C:evil": b"2"})),
    ],
)
def test_nothing_leaves_the_folder(tmp_path: Path, form: str, content: bytes) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "it").write_bytes(content)
    with raises("archive-unsafe"):
        unpack.unpack(tmp_path / "it", form, root, ("a",))
    assert list(root.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["it", "root"]


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (6, b"\1\0", "'a/x' in it is encrypted"),
        (8, b"\x62\0", "'a/x' in it: .*compression"),
        (6, b"\x20\0", "'a/x' in it: .*patched"),
    ],
)
def test_zips_of_a_kind_that_is_not_read(tmp_path: Path, place: int, value: bytes, words: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    content = bytearray(zip_of({"a/x": b"1"}))
    # The same two fields stand in the header of the member and, two bytes on, in the table at the end.
    table = content.rindex(b"PK\1\2")
    content[place : place + 2] = content[table + place + 2 : table + place + 4] = value
    (tmp_path / "it").write_bytes(content)
    with raises("archive-damaged", match=words):
        unpack.unpack(tmp_path / "it", "zip", root, ("a",))
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("form", ["tar", "zip", "gz", "tar.gz", "tar.xz", "zip.deflated"])
def test_damaged_archives_are_one_sentence(tmp_path: Path, form: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    plain = tar_of({"a/x": b"1" * 300, "a/y": b"2"})
    packed = {
        "tar": plain,
        "zip": zip_of({"a/x": b"1" * 300, "a/y": b"2"}),
        "gz": gzip.compress(bytes(range(256))),
        "tar.gz": gzip.compress(plain),
        "tar.xz": lzma.compress(plain),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/x", bytes(range(256)) * 4)
    whole = (packed | {"zip.deflated": buffer.getvalue()})[form]
    generator = np.random.default_rng(0)
    for _ in range(150):
        content = bytearray(whole)
        for place in generator.integers(len(content), size=4):
            content[place] = generator.integers(256)
        (tmp_path / "it").write_bytes(content)
        with contextlib.suppress(Error):
            unpack.unpack(tmp_path / "it", form.split(".")[0], root, ("a",))
            shutil.rmtree(root / "a") if (root / "a").is_dir() else (root / "a").unlink()
        assert list(root.iterdir()) == []


def test_a_full_disk_while_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "it").write_bytes(tar_of({"a/x": b"1", "a/y": b"2"}))
    copied = []

    def copy(source: object, target: object) -> None:
        copied.append(target)
        if len(copied) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", copy)
    with raises("disk-full", match="is full, so 'it' is not unpacked; it is kept"):
        unpack.unpack(tmp_path / "it", "tar", root, ("a",))
    assert list(root.iterdir()) == []


# --- whole sets


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def mnist(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """MNIST from a hub that does not answer, and from idx files that are there."""
    images = gzip.compress(idx(np.arange(3 * 28 * 28).reshape(3, 28, 28)))
    labels = gzip.compress(idx(np.array([4, 5, 6])))
    sources = (
        (Download(f"http://127.0.0.1:{server.server_port}/hub.parquet", ("mnist/test.parquet",)),),
        (
            Download(
                server.put("/images.gz", images), ("mnist/t10k-images-idx3-ubyte",), "gz", md5(images), "its publisher"
            ),
            Download(
                server.put("/labels.gz", labels), ("mnist/t10k-labels-idx1-ubyte",), "gz", md5(labels), "its publisher"
            ),
        ),
    )
    monkeypatch.setattr(get, "SOURCES", {"mnist": {"test": sources}})
    return server


def test_getting_a_set_by_its_second_source(mnist: Server, tmp_path: Path) -> None:
    root = tmp_path / "new" / "root"
    made = get_dataset("mnist", root)
    assert [path.name for path in made] == ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
    assert open_dataset("mnist", root).labels.tolist() == [4, 5, 6]
    assert sorted(tree(root)) == ["downloads.json", "mnist/t10k-images-idx3-ubyte", "mnist/t10k-labels-idx1-ubyte"]
    record = json.loads((root / "downloads.json").read_text())
    images = mnist.content["/images.gz"]
    entry = next(value for key, value in record.items() if key.endswith("/images.gz"))
    assert entry == {"bytes": len(images), "md5": md5(images), "sha256": hashlib.sha256(images).hexdigest()}
    # What is there is not fetched again.
    asked = len(mnist.asked)
    assert get_dataset("mnist", root) == []
    assert len(mnist.asked) == asked
    # Of two files, only the missing one is.
    (root / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    assert [path.name for path in get_dataset("mnist", root)] == ["t10k-labels-idx1-ubyte"]
    assert "/images.gz" not in [path for path, _ in mnist.asked[asked:]]


def test_a_wrong_checksum(mnist: Server, tmp_path: Path) -> None:
    mnist.put("/images.gz", b"something else")
    with raises("download-wrong-file", match=r"its MD5 is .*, but its publisher states"):
        get_dataset("mnist", tmp_path)
    assert tree(tmp_path) == {}


def test_a_file_that_is_not_the_one_of_the_first_download(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (Download(server.put("/list.txt", b"first"), ("mnist/list.txt",)),)
    monkeypatch.setattr(get, "SOURCES", {"mnist": {"test": (source,)}})
    get_dataset("mnist", tmp_path)
    (tmp_path / "mnist" / "list.txt").unlink()
    server.put("/list.txt", b"second")
    with raises(
        "download-wrong-file", match=r"was deleted: its SHA-256 is .*, but the first download, in .*downloads\.json"
    ):
        get_dataset("mnist", tmp_path)
    assert sorted(tree(tmp_path)) == ["downloads.json"]
    server.put("/list.txt", b"first")
    get_dataset("mnist", tmp_path)
    assert (tmp_path / "mnist" / "list.txt").read_bytes() == b"first"
    (tmp_path / "mnist" / "list.txt").unlink()
    (tmp_path / "downloads.json").write_text("[]")
    with raises("download-record-invalid"):
        get_dataset("mnist", tmp_path)


def test_an_archive_of_a_corrupted_set(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {}
    for word in ("snow", "fog"):
        buffer = io.BytesIO()
        Image.new("RGB", (8, 8)).save(buffer, "PNG")
        files[f"{word}/5/n01440764/a.JPEG"] = buffer.getvalue()
    archive = tar_of(dict(files))
    url = server.put("/weather.tar", archive)
    source = (Download(url, ("ImageNet-C/snow", "ImageNet-C/fog"), "tar", md5(archive), "Zenodo"),)
    monkeypatch.setattr(get, "PUBLISHED_SOURCES", {"imagenet": {"snow": source, "fog": source}})
    get_dataset("imagenetc", tmp_path, corruption="fog")
    assert {f"ImageNet-C/{name}" for name in files} < set(tree(tmp_path))
    assert get_dataset("imagenetc", tmp_path, corruption="snow") == []
    assert [path for path, _ in server.asked] == ["/weather.tar"]


def test_an_archive_that_arrived_is_not_fetched_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (Download(server.put("/a.zip", zip_of({"imagenet-r/x": b"1"})), ("imagenet-r",), "zip"),)
    monkeypatch.setattr(get, "SOURCES", {"imagenetr": {"test": (source,)}})
    with monkeypatch.context() as patched:
        patched.setattr(
            get, "unpack", lambda *arguments: (_ for _ in ()).throw(Error("The disk is full.", code="disk-full"))
        )
        with raises("disk-full"):
            get_dataset("imagenetr", tmp_path)
    get_dataset("imagenetr", tmp_path)
    assert len(server.asked) == 1
    assert sorted(tree(tmp_path)) == ["downloads.json", "imagenet-r/x"]


def test_what_cannot_be_fetched() -> None:
    for name, words in (
        ("imagenet", "licence you must accept yourself"),
        ("ccc", r"generate\.py"),
        ("sample:mnist", "needs no download"),
        ("folder:x", "needs no download"),
    ):
        with raises("download-unavailable", match=words):
            get_dataset(name, Path("unused"))
    with raises("corruption-unknown", match="no corruption 'hail'"):
        get_dataset("imagenetc", Path("unused"), corruption="hail")
    assert not Path("unused").exists()


def test_every_download_lands_where_the_catalogue_looks() -> None:
    for name, splits in addresses.SOURCES.items():
        assert set(splits) == set(CATALOGUE[name].splits)
        for split, sources in splits.items():
            places = [layout.path for layout in CATALOGUE[name].splits[split].layouts]
            for source in sources:
                made = [path for download in source for path in download.makes]
                assert any(place == path or place.startswith(f"{path}/") for place in places for path in made), name
    for name, sources in addresses.PUBLISHED_SOURCES.items():
        published = CATALOGUE[name].published
        assert published is not None
        made = {path for source in sources.values() for download in source for path in download.makes}
        assert {path.split("/")[0] for path in made} == {published.folder}
    assert len(addresses.PUBLISHED_SOURCES["imagenet"]) == 15


def test_checksums_say_whose_they_are() -> None:
    groups = [group for splits in addresses.SOURCES.values() for group in splits.values()]
    groups += [tuple(sources.values()) for sources in addresses.PUBLISHED_SOURCES.values()]
    every = [download for group in groups for source in group for download in source]
    assert all(bool(download.md5) == bool(download.stated_by) for download in every)
    assert all(len(download.md5) in (0, 32) for download in every)
    # Two different files never share a name while they are on their way.
    assert len({download.file for download in every}) == len({download.url for download in every})
