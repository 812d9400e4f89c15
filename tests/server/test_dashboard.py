"""The dashboard in a real browser.

Made, fed, watched and deleted by the keyboard, with what a screen reader would hear.
"""

from __future__ import annotations

import base64
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from helpers.browsing import BROWSER, FLAGS, figure, tab_to, unnamed
from helpers.served import TOKEN, Server, encoded, running
from ostta.core.types import EVENTS
from ostta.data import open_dataset
from ostta.data.class_names import read_line

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="Debian's chromium is not installed"),
    # Classes with odd names are the point here.
    pytest.mark.filterwarnings("ignore:The embedded model was not trained on"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

WIDE = {"width": 1280, "height": 900}
SCRIPT = "<script>x</script>"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def context(server: Server) -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # A busy machine takes its time.
        playwright.expect.set_options(timeout=30_000)
        browser = started.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser.new_context(reduced_motion="reduce")
        browser.close()


@pytest.fixture(scope="module")
def signed_in(context: Any, server: Server) -> Any:
    """A page behind the sign-in form, after a wrong token and the right one."""
    page = context.new_page()
    page.goto(server.address)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    playwright.expect(page.get_by_role("alert")).to_contain_text("token")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
    return page


@pytest.fixture
def page(signed_in: Any, server: Server) -> Iterator[Any]:
    """The page, at the overview; whatever the test does, nothing goes wrong in the console and nobody else is asked."""
    wrong: list[str] = []
    hosts: set[str] = set()
    listeners = {
        "console": lambda message: message.type in ("error", "warning") and wrong.append(message.text),
        "pageerror": lambda error: wrong.append(str(error)),
        "request": lambda request: hosts.add(re.sub(r"^(blob:)?(\w+://[^/]*).*", r"\2", request.url)),
    }
    signed_in.set_viewport_size(WIDE)
    signed_in.goto(f"{server.address}/#/")
    # What another test has left, such as an open dialog, is gone.
    signed_in.reload()
    for name, listener in listeners.items():
        signed_in.on(name, listener)
    yield signed_in
    for name, listener in listeners.items():
        signed_in.remove_listener(name, listener)
    signed_in.unroute_all()
    expected = getattr(signed_in, "expected", None)
    signed_in.expected = None
    assert [text for text in wrong if not (expected and expected in text)] == []
    assert hosts <= {server.address}


def test_the_files_are_open_to_everybody_and_asked_for_anew(server: Server) -> None:
    for path, kind in (("/", "text/html"), ("/static/main.js", "javascript"), ("/static/page.css", "text/css")):
        with urllib.request.urlopen(server.address + path, timeout=30) as answer:
            assert kind in answer.headers["content-type"]
            assert answer.headers["cache-control"] == "no-cache"
            assert "'unsafe-inline'" not in answer.headers["content-security-policy"]


def test_a_session_is_made_with_the_keyboard_alone(page: Any) -> None:
    tab_to(page, "link", "New session")
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("heading", level=1)).to_be_focused()
    tab_to(page, "textbox", "Name (may be left empty)")
    page.keyboard.type("front door")
    tab_to(page, "textbox", "Classes, one per line")
    page.keyboard.type(f"cat: a photo of a house cat; a kitten\ndog\n{SCRIPT}")
    tab_to(page, "button", "Create the session")
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1, name="front door")
    playwright.expect(heading).to_be_focused()
    assert page.get_by_role("rowheader", name=SCRIPT).inner_text() == SCRIPT
    assert page.title() == "front door · ostta"
    assert unnamed(page) == []


def test_an_error_is_the_servers_sentence(page: Any) -> None:
    page.goto(page.url.split("#")[0] + "#/new")
    page.expected = "422"
    page.get_by_label("Classes, one per line").fill("cat\ncat")
    page.get_by_role("button", name="Create the session").click()
    playwright.expect(page.get_by_role("alert")).to_contain_text("cat")
    assert page.url.endswith("#/new")


def test_a_session_that_is_not_there_is_said_so(page: Any, server: Server) -> None:
    page.expected = "404"
    page.goto(f"{server.address}/#/sessions/nothing")
    playwright.expect(page.get_by_role("heading", level=1, name="No such session")).to_be_focused()
    assert "There is no session with that id." in page.get_by_role("main").inner_text()
    gone = server.make("shed")
    page.goto(f"{server.address}/#/sessions/{gone}")
    playwright.expect(page.get_by_role("heading", level=1, name="shed")).to_be_focused()
    server.delete(gone)
    playwright.expect(page.get_by_role("heading", level=1, name="No such session")).to_be_visible()


def test_classes_are_read_as_everywhere(page: Any) -> None:
    for text in ("cat\ndog", "cat: a kitten; a photo of a cat\n\n dog ", "time 12:30\nold: a: b"):
        read = page.evaluate("text => import('/static/new_session.js').then(module => module.readClasses(text))", text)
        expected = dict(read_line(line) for line in text.split("\n") if line.strip())
        assert read == (expected if any(expected.values()) else list(expected))
    for text, expected in (
        ("dog, horse", ["dog", "horse"]),
        ("dog, horse,\ncat", ["dog", "horse", "cat"]),
        ("dog, horse\ncat: small, with fur", {"dog": [], "horse": [], "cat": ["small, with fur"]}),
    ):
        read = page.evaluate("text => import('/static/new_session.js').then(module => module.readClasses(text))", text)
        assert read == expected


def test_an_image_is_answered_and_news_arrive_by_themselves(page: Any, server: Server) -> None:
    session = server.make("yard")
    page.get_by_role("link", name="yard").click()
    command = page.get_by_text("Send it an image:")
    playwright.expect(command).to_contain_text(
        f'curl -H "Authorization: Bearer $TOKEN" --data-binary @image.jpg {server.address}/sessions/{session}/images'
    )
    dropped = base64.b64encode(encoded(open_dataset("sample:cifar10").image(0))).decode()
    page.evaluate(
        """content => {
          const transfer = new DataTransfer();
          const bytes = Uint8Array.from(atob(content), letter => letter.charCodeAt(0));
          transfer.items.add(new File([bytes], "one.png", { type: "image/png" }));
          document.querySelector(".drop").dispatchEvent(
            new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: transfer }));
        }""",
        dropped,
    )
    answer = page.locator(".answer")
    playwright.expect(answer.get_by_role("table").first).to_be_visible()
    assert answer.get_attribute("aria-live") == "polite"
    guesses = [f"undecided ({name}?), 0.75" for name in open_dataset("sample:cifar10").classes]
    assert answer.locator(".said").inner_text() in guesses
    assert len(answer.get_by_role("rowheader").all_inner_texts()) == 5
    # Nothing was learned or counted.
    assert server.ask(f"/sessions/{session}")["steps"] == 0
    playwright.expect(page.get_by_text("Live", exact=True)).to_be_visible()
    server.feed(session, 40)
    playwright.expect(figure(page, "images")).to_have_text("40")
    playwright.expect(command).to_be_hidden()
    playwright.expect(
        page.get_by_role("img", name=re.compile("Histogram of the last 40 probabilities"))
    ).to_be_visible()
    page.locator("#image").set_input_files(
        {"name": "two.png", "mimeType": "image/png", "buffer": base64.b64decode(dropped)}
    )
    playwright.expect(answer).to_contain_text("than chance by")
    assert re.fullmatch(r"(unknown|\w+), [01]\.\d\d", answer.locator(".said").inner_text())
    playwright.expect(figure(page, "undecided")).to_have_text("32")
    playwright.expect(page.get_by_role("heading", name="Probabilities over time")).to_be_visible()
    page.expected = "422"
    page.locator("#image").set_input_files({"name": "bad.png", "mimeType": "image/png", "buffer": b"no image"})
    playwright.expect(page.get_by_role("alert")).to_contain_text("image")
    playwright.expect(answer).to_be_empty()


def state_file(content: bytes) -> dict[str, Any]:
    return {"name": "gate.ostta", "mimeType": "application/octet-stream", "buffer": content}


def test_buttons_do_what_they_say(page: Any, server: Server) -> None:
    session = server.make("gate")
    server.feed(session, 3)
    page.get_by_role("link", name="gate").click()
    button = lambda name: page.get_by_role("button", name=name, exact=True)  # noqa: E731
    button("Freeze").click()
    playwright.expect(page.locator(".lamp")).to_contain_text("frozen")
    assert server.ask(f"/sessions/{session}")["frozen"] is True
    button("Thaw").click()
    playwright.expect(button("Freeze")).to_be_visible()
    assert server.ask(f"/sessions/{session}")["frozen"] is False

    button("Rename").click()
    playwright.expect(page.get_by_label("New name")).to_be_focused()
    page.get_by_label("New name").fill(f"gate {SCRIPT}")
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("heading", level=1)).to_have_text(f"gate {SCRIPT}")
    playwright.expect(button("Rename")).to_be_focused()

    with page.expect_download() as waiting:
        button("Export").click()
    exported = Path(waiting.value.path()).read_bytes()
    assert re.fullmatch(r"gate-[\w.-]+\.ostta", waiting.value.suggested_filename)
    button("Roll back").click()
    playwright.expect(page.get_by_role("dialog").get_by_role("heading")).to_have_text("Roll back this session?")
    page.keyboard.press("Escape")
    button("Reset").click()
    playwright.expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    assert server.ask(f"/sessions/{session}")["steps"] == 3
    button("Reset").click()
    # An earlier message may still be there: the answer to the request is what tells that the reset was done.
    with page.expect_response(lambda answer: answer.request.method == "POST" and "reset" in answer.url):
        page.get_by_role("dialog").get_by_role("button", name="Reset").click()
    playwright.expect(page.locator("#message")).not_to_be_empty()
    assert server.ask(f"/sessions/{session}")["steps"] == 0
    button("Replace state").click()
    page.get_by_label("State file", exact=True).set_input_files(state_file(exported))
    page.get_by_role("dialog").get_by_role("button", name="Replace").click()
    playwright.expect(page.locator("#message")).to_contain_text("replaced")
    assert server.ask(f"/sessions/{session}")["steps"] == 3

    button("Delete").click()
    assert unnamed(page) == []
    page.go_back()
    playwright.expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
    assert page.get_by_role("dialog").count() == 0
    page.go_forward()
    button("Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    playwright.expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
    assert session not in {each["id"] for each in server.ask("/sessions")["sessions"]}

    page.get_by_role("link", name="New session").click()
    page.get_by_label("State file", exact=True).set_input_files(state_file(exported))
    page.get_by_label("Name (optional)").fill("gate again")
    button("Import").click()
    playwright.expect(page.get_by_role("heading", level=1, name="gate again")).to_be_focused()
    assert server.ask(f"/sessions/{page.url.rpartition('/')[2]}")["steps"] == 3


def test_narrow_and_heard(page: Any, server: Server) -> None:
    long = server.make("a long name without any space " + "x" * 60, "m" * 20, "dog")
    server.feed(long, 5)
    page.set_viewport_size({"width": 420, "height": 800})
    for address, heading in (("#/", "Sessions"), (f"#/sessions/{long}", "a long name"), ("#/new", "New session")):
        page.goto(f"{server.address}/{address}")
        playwright.expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        if "sessions/" in address:
            playwright.expect(figure(page, "images")).to_have_text("5")
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
        assert unnamed(page) == []
        for landmark in ("banner", "navigation", "main", "contentinfo"):
            assert page.get_by_role(landmark).count() == 1


def test_events_are_shown_with_their_evidence(page: Any, server: Server) -> None:
    session = server.make("cellar")
    events = [
        {"step": 8, "time": 1.0 + place, "kind": kind, "sentence": f"{SCRIPT} `lr`", "evidence": {"evenness": 0.122}}
        for place, kind in enumerate(EVENTS)
    ]
    page.route("**/recent?limit=*", lambda route: route.fulfill(json={"points": [], "events": events}))
    page.goto(f"{server.address}/#/sessions/{session}")
    items = page.locator("ol.events li")
    playwright.expect(items).to_have_count(len(EVENTS))
    for item, kind in zip(items.all(), reversed(EVENTS), strict=True):
        item.scroll_into_view_if_needed()
        playwright.expect(item).to_be_in_viewport()
        text = item.inner_text()
        assert text.startswith(f"{kind.replace('_', ' ')} at step 8, ")
        assert f"{SCRIPT} lr" in text
        assert "Evidence: evenness 0.122" in text


def test_images_are_shown_only_where_they_are_kept(page: Any, server: Server) -> None:
    session = server.make("hall")
    server.feed(session, 2)
    page.get_by_role("link", name="hall").click()
    playwright.expect(page.get_by_text("This server keeps no images")).to_be_visible()
    picture = f"data:image/png;base64,{base64.b64encode(encoded(Image.new('RGB', (8, 8), 'red'))).decode()}"
    kept = [{"step": 2, "score": 0.5, "label": SCRIPT, "known": True, "thumbnail": picture}]
    page.route("**/info", lambda route: route.fulfill(json={**server.ask("/info"), "keeps_images": True}))
    page.route("**/kept?which=*", lambda route: route.fulfill(json={"images": kept}))
    page.reload()
    playwright.expect(page.get_by_role("img", name=f"Step 2: {SCRIPT}, score 0.500")).to_have_count(2)
    assert page.get_by_text("This server keeps thumbnails").is_visible()


def test_a_connection_that_is_lost_comes_back(page: Any, server: Server) -> None:
    session = server.make("roof")
    playwright.expect(page.get_by_role("link", name="roof")).to_be_visible()
    page.expected = "Failed to load resource"
    page.context.set_offline(True)
    playwright.expect(page.locator("#connection")).to_have_text("Connection lost, retrying")
    page.context.set_offline(False)
    playwright.expect(page.locator("#message")).to_have_text("The connection is back.")
    page.route("**/events", lambda route: route.abort())
    page.goto(f"{server.address}/#/sessions/{session}")
    playwright.expect(page.locator("#connection")).to_contain_text("Polling every 2 seconds")
    server.feed(session, 2)
    playwright.expect(figure(page, "images")).to_have_text("2")


def test_signing_out(page: Any) -> None:
    page.expected = "401"
    page.get_by_role("button", name="Sign out").click()
    playwright.expect(page.get_by_role("heading", level=1, name="Sign in")).to_be_focused()
    assert unnamed(page) == []
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
