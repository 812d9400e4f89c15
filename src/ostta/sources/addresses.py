"""rtsp and http(s) addresses and cameras: what is behind them, and frames of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from ..core.types import Error
from .decoding import opened, picture, problems, require_av, said
from .live import Live, Shot
from .source import Source

RTSP = ("rtsp", "rtsps")
HTTP = ("http", "https")


def scheme_of(source: str) -> str | None:
    """What stands before "://", in lower case; None where nothing does."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", source)
    return None if found is None else found[1].lower()


def without_password(address: str) -> str:
    """An address as it may be shown.

    >>> without_password("rtsp://me:secret@10.0.0.7/door")
    'rtsp://me:***@10.0.0.7/door'
    """
    return re.sub(r"^([^/]*//[^/@:]*):[^/]*@", r"\1:***@", address)


def check_address(address: str) -> None:
    """Raise an Error unless it names a machine."""
    try:
        host, _ = urlsplit(address).hostname, urlsplit(address).port
    except ValueError:
        host = None
    if not host or re.search(r"[\s\x00-\x1f]", address):
        raise Error(f"'{without_password(address)}' is no address: give one such as rtsp://10.0.0.7:554/door.")


def camera(number: int, every: int, retries: int | None) -> Source:
    """The camera /dev/video<number> of Video4Linux."""
    require_av()
    device = Path(f"/dev/video{number}")
    if not device.exists():
        there = sorted(int(path.name[5:]) for path in Path("/dev").glob("video*") if path.name[5:].isdigit())
        others = f"; there are {', '.join(map(str, there))}" if there else " nor any other"
        raise Error(f"There is no camera {number}{others}.")
    name = f"camera {number}"
    return Live(name, partial(decoded, str(device), name, "v4l2"), every, retries)


def rtsp(address: str, every: int, retries: int | None) -> Source:
    """A stream of an RTSP server, through TCP: it passes walls, and no packet is lost on the way."""
    require_av()
    check_address(address)
    name = without_password(address)
    options = {"rtsp_transport": "tcp"}
    return Live(name, partial(decoded, address, name, None, options), every, retries)


def decoded(where: str, name: str, form: str | None = None, options: Mapping[str, str] | None = None) -> Iterator[Shot]:
    """Connect, and decode what comes."""
    with opened(where, name, form=form, far=True, options=options) as (container, stream):
        try:
            for frame in container.decode(stream):
                yield partial(picture, frame)
                del frame
        except problems() as problem:
            raise Error(f"{name} cannot be read any more: {said(problem)}.") from None
