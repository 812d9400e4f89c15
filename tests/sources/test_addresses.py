"""http(s) and rtsp addresses, against servers on this machine.

Images, streams of them, videos, and answers that nobody wants.
"""

from __future__ import annotations

import base64
import contextlib
import io
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from helpers.cases import adapter, images
from helpers.errors import raises
from helpers.pictures import encoded
from ostta.sources import addresses, decoding, live
from ostta.sources import open as open_source
from ostta.sources.addresses import multipart_images

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """Answers by path; `asked` are the paths that were asked for."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                with contextlib.suppress(ConnectionError, BrokenPipeError):
                    outer.answers[self.path](self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True).start()

    def at(self, path: str, answer: Answer) -> str:
        self.answers[path] = answer
        return f"http://127.0.0.1:{self.port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server()
    yield made
    made.close()


def jpeg(number: int = 0) -> bytes:
    return encoded(images(number + 1)[number], "JPEG")


def gives(content: bytes, kind: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    return answer


def leads_to(address: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", address)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


# --- images -----------------------------------------------------------------------------------------------------------
def test_an_image_at_an_address(server: Server) -> None:
    address = server.at("/a.jpg?x=1", gives(jpeg(), "image/jpeg"))
    (item,) = open_source(address)
    assert (item.name, item.key, item.frame, item.image) == (address, "", None, jpeg())
    (prediction,) = adapter("zero_shot").stream(open_source(server.at("/b", leads_to(address))))
    assert prediction.name.endswith("/b")
    assert prediction.verdict is not None


def test_several_addresses_one_of_which_refuses(server: Server) -> None:
    good = server.at("/a.jpg", gives(jpeg(), "image/jpeg"))
    bad = server.at("/b.jpg", lambda request: request.send_error(404))
    found = list(open_source(good, bad, good))
    assert [item.problem for item in found] == [None, f"{bad} cannot be read: the server answered 404 Not Found.", None]


def test_addresses_in_a_list(server: Server, tmp_path: Path) -> None:
    good = server.at("/a.jpg", gives(jpeg(), "image/jpeg"))
    bad = server.at("/b.jpg", lambda request: request.send_error(404))
    images(1)[0].save(tmp_path / "c.png")
    listed = tmp_path / "list.txt"
    listed.write_text(f"{good}\n{bad}\n{tmp_path / 'c.png'}\nftp://host/d.jpg\nhttp://\n")
    found = list(open_source(listed))
    assert [item.name for item in found] == [good, bad, str(tmp_path / "c.png"), "ftp://host/d.jpg", "http://"]
    assert found[0].image == jpeg()
    assert [item.problem for item in found[:3]] == [
        None,
        f"{bad} cannot be read: the server answered 404 Not Found.",
        None,
    ]
    assert found[3].problem == "ftp://host/d.jpg cannot be read: addresses in a list must begin with http or https."
    assert "is not an address" in str(found[4].problem)


def test_a_password_is_used_and_never_shown(server: Server) -> None:
    expected = "Basic " + base64.b64encode(b"me:s@cret").decode()

    def answer(request: BaseHTTPRequestHandler) -> None:
        if request.headers.get("Authorization") == expected:
            gives(jpeg(), "image/jpeg")(request)
            return
        request.send_response(401)
        request.send_header("WWW-Authenticate", 'Basic realm="camera"')
        request.send_header("Content-Length", "0")
        request.end_headers()

    server.at("/a.jpg", answer)
    (item,) = open_source(f"http://me:s%40cret@127.0.0.1:{server.port}/a.jpg")
    assert item.name == f"http://me:***@127.0.0.1:{server.port}/a.jpg"
    with raises("source-unreadable", match="the server answered 401") as caught:
        open_source(f"http://me:wr0ng@127.0.0.1:{server.port}/a.jpg")
    assert "wr0ng" not in str(caught.value)


def test_answers_that_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(addresses, "TIMEOUT_SECONDS", 0.5)
    wait = threading.Event()

    def silent(request: BaseHTTPRequestHandler) -> None:
        wait.wait(5)

    def endless(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "image/jpeg")
        request.end_headers()
        while True:
            request.wfile.write(bytes(1 << 16))

    loop = server.at("/loop", leads_to("/loop"))
    ladder = [server.at(f"/{step}", leads_to(f"/{step + 1}")) for step in range(9)]
    for address, words in (
        (loop, "redirects more than 5 times, or in a circle"),
        (ladder[0], "redirects more than 5 times, or in a circle"),
        (server.at("/file", leads_to("file:///etc/passwd")), "redirects more than 5"),
        (
            server.at("/ftp", leads_to("ftp://127.0.0.1/x")),
            "cannot be reached: it redirects to an address that is not http",
        ),
        (server.at("/page", gives(b"<html>", "text/html")), "has the type text/html"),
        (server.at("/silent", silent), "no answer within 0.5 seconds"),
        ("http://127.0.0.1:1/", "cannot be reached: Connection refused"),
        ("http://name.invalid/", "cannot be reached: "),
        (server.at("/endless", endless), "has more than 1 megabytes"),
    ):
        with raises("source-unreadable", match=words) as caught:
            list(open_source(address))
        assert len(str(caught.value).splitlines()) == 1
    wait.set()


def test_an_image_of_too_many_pixels_is_refused_by_who_reads_it(server: Server) -> None:
    content = bytearray(jpeg())
    place = content.index(b"\xff\xc0")
    content[place + 5 : place + 9] = b"\xff\xff\xff\xff"
    (prediction,) = adapter("zero_shot").stream(open_source(server.at("/big.jpg", gives(bytes(content), "image/jpeg"))))
    assert "at most 64 megapixels are read" in prediction.reason


# --- streams of images ------------------------------------------------------------------------------------------------
def streams(pictures: list[bytes], wait: threading.Event, *, lengths: bool, boundary: str = "frame") -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", f"multipart/x-mixed-replace; boundary={boundary}")
        request.end_headers()
        for content in [*pictures, b"no more"]:
            length = f"Content-Length: {len(content)}\r\n" if lengths else ""
            head = f"--{boundary.strip('-')}\r\nContent-Type: image/jpeg\r\n{length}\r\n"
            request.wfile.write(head.encode() + content + b"\r\n")
            if content is pictures[0]:
                wait.wait(10)

    return answer


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.parametrize("boundary", ["frame", "--frame"])
def test_a_stream_of_jpegs(lengths: bool, boundary: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "QUEUE_LENGTH", 100)
    go_on = threading.Event()
    pictures = [jpeg(0), jpeg(1), jpeg(2), jpeg(3)]
    address = server.at("/live", streams(pictures, go_on, lengths=lengths, boundary=boundary))
    go_on.set()
    with open_source(address, retries=0) as source:
        assert source.live
        found = list(islice(source, 4))
    assert [item.image for item in found] == pictures
    assert [(item.name, item.frame) for item in found] == [(f"{address}#{number}", number) for number in range(4)]


def test_a_stream_of_jpegs_that_ends_is_connected_to_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "RETRY_DELAYS", (0.0,))
    go_on = threading.Event()
    go_on.set()
    address = server.at("/live", streams([jpeg(0), jpeg(1)], go_on, lengths=True))
    with open_source(address) as source:
        for item in source:
            if item.frame > 6:
                break
    assert {"lost", "reconnected"} <= {event.kind for event in source.events}


def test_parts_that_are_no_images_or_too_large() -> None:
    body = (
        b"x\r\n--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b\r\nContent-Type: "
        b"image/jpeg\r\n\r\nA\nB\r\n--b\r\n\r\nhalf"
    )
    assert list(multipart_images(io.BytesIO(body), b"b", 100)) == [b"A\nB"]
    for part in (b"Content-Length: 999\r\n\r\n", b"\r\n" + b"x" * 200):
        with raises("source-unreadable"):
            list(multipart_images(io.BytesIO(b"--b\r\n" + part), b"b", 100))
    with raises("source-unreadable"):
        list(multipart_images(io.BytesIO(b"--b\r\n" + b"a: b\r\n" * 200), b"b", 100))


# --- videos -----------------------------------------------------------------------------------------------------------
def test_a_video_at_an_address_gives_every_frame(server: Server, tmp_path: Path) -> None:
    from helpers.videos import pixels, video

    content = video(tmp_path / "a.mkv", frames=20).read_bytes()
    address = server.at("/a.mkv", gives(content, "video/x-matroska"))
    source = open_source(address, every=3)
    found = list(source)
    assert not source.live
    assert [item.frame for item in found] == list(range(0, 20, 3))
    assert [item.name for item in found][1] == f"{address}#3"
    assert np.abs(found[2].image.astype(int) - pixels(6)).mean() < 25


def test_a_playlist_does_not_lead_to_files_of_this_machine(server: Server, tmp_path: Path) -> None:
    from helpers.videos import video

    secret = video(tmp_path / "secret.ts", frames=30)
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:1.2,\nfile://{secret}\n#EXT-X-ENDLIST\n"
    address = server.at("/live.m3u8", gives(playlist.encode(), "application/vnd.apple.mpegurl"))
    with raises("source-unreadable"):
        list(islice(open_source(address, retries=0), 1))


def test_a_playlist_is_read_and_a_list_of_files_is_not(server: Server, tmp_path: Path) -> None:
    from helpers.videos import video

    segment = server.at("/a.ts", gives(video(tmp_path / "a.ts", frames=30).read_bytes(), "video/mp2t"))
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:1.2,\n{segment}\n#EXT-X-ENDLIST\n"
    address = server.at("/live.m3u8", gives(playlist.encode(), "application/vnd.apple.mpegurl"))
    with open_source(address, retries=0) as source:
        assert next(iter(source)).image.shape == (64, 64, 3)
    listed = f"ffconcat version 1.0\nfile {segment}\n"
    with raises("source-unreadable"):
        list(open_source(server.at("/list.mp4", gives(listed.encode(), "video/mp4"))))


# --- rtsp -------------------------------------------------------------------------------------------------------------
def test_an_rtsp_address_that_refuses_or_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "TIMEOUT_SECONDS", 0.5)
    with raises("source-unreadable", match=r"^rtsp://me:\*\*\*@127.0.0.1:1/x cannot be opened: connection refused\.$"):
        open_source("rtsp://me:secret@127.0.0.1:1/x")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with raises("source-unreadable", match=r"^rtsp://127.0.0.1:\d+/x cannot be opened: [^\n]*\.$"):
            open_source(f"rtsp://127.0.0.1:{silent.getsockname()[1]}/x")
