"""Access: tokens in a file, cookies for browsers, allowed Host and Origin headers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser
from starlette.requests import HTTPConnection

from ..core.errors import translate_errors
from ..core.types import Error
from ..io import read_regular
from .problems import ProblemError
from .settings import Clock

# Probes of an orchestrator.
PROBES = ("/health", "/ready")
# In the place of a session in the token file: the token may read this path.
METRICS = "/metrics"
# Paths without a token: probes, and the page with the sign-in form.
OPEN = (*PROBES, "/login", "/logout", "/", "/favicon.ico")
COOKIE = "ostta"
# Seconds until a sign-in expires.
COOKIE_SECONDS = 12 * 3600
# Maximum number of remembered signed-out cookies.
MOST_SIGNED_OUT = 10_000
MIN_TOKEN_LENGTH = 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
# The time at which a cookie expires, in whole seconds.
_EXPIRY = re.compile(r"([0-9]{1,12})\.")

HEADERS = [
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:;"
     b" font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Token(BaseUser):
    """One line of the token file. `patterns` are the ids or names of sessions that it gives access to; none means all.

    The pattern `/metrics` stands for the metrics of the server, not for a session.

    >>> Token("0123456789abcdef", ("door*",)).allows("a" * 32, "door 3")
    True
    """

    text: str
    patterns: tuple[str, ...] = ()

    def allows(self, id: str | None, name: str | None) -> bool:
        """Return whether a session with this id and name may be used."""
        return not self.patterns or any(
            pattern == id or (name is not None and fnmatchcase(name, pattern))
            for pattern in self.patterns
            if pattern != METRICS
        )

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.text.encode()).digest()


ANYBODY = Token("")
# For requests without a valid token on a server with tokens: no session is allowed.
GUEST = Token("", ("",))


class Tokens:
    """The tokens of a server. Without tokens, every client has full access, which is meant for loopback only.

    >>> Tokens([Token("0123456789abcdef")]).of_bearer("0123456789abcdef") is None
    False
    """

    def __init__(self, tokens: Sequence[Token] = ()) -> None:
        self._tokens = tuple(tokens)
        self._digests = [token.digest for token in self._tokens]
        # Cookies that were signed out, with the time at which they expire.
        self._signed_out: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def of_bearer(self, given: str) -> Token | None:
        """Return the token that was sent, or None if it is not a token of this server."""
        return self._matching(hashlib.sha256(given.encode("utf-8", "replace")).digest(), self._digests)

    def cookie(self, token: Token, now: float) -> str:
        """Return a cookie that stands for a token. It does not contain the token and becomes invalid with it."""
        signed = f"{int(now) + COOKIE_SECONDS}.{secrets.token_urlsafe(12)}"
        return f"{signed}.{_signature(token, signed)}"

    def of_cookie(self, cookie: str, now: float) -> Token | None:
        """Return the token that a cookie stands for, or None if the cookie is not valid."""
        until = _EXPIRY.match(cookie)
        if until is None or not now <= int(until[1]) <= now + 2 * COOKIE_SECONDS or cookie in self._signed_out:
            return None
        signed, _, signature = cookie.rpartition(".")
        return self._matching(
            signature.encode("utf-8", "replace"), [_signature(token, signed).encode() for token in self._tokens]
        )

    def sign_out(self, cookie: str, now: float) -> None:
        """Invalidate a cookie before it expires."""
        if self.of_cookie(cookie, now) is None:
            return
        self._signed_out = {other: until for other, until in self._signed_out.items() if until >= now}
        if len(self._signed_out) >= MOST_SIGNED_OUT:
            del self._signed_out[next(iter(self._signed_out))]
        self._signed_out[cookie] = int(cookie.partition(".")[0])

    def _matching(self, given: bytes, expected: Sequence[bytes]) -> Token | None:
        """Return the token at the place of `given` in `expected`.

        All values are compared, each in constant time, so that the duration reveals nothing.
        """
        found = None
        for token, value in zip(self._tokens, expected, strict=True):
            if hmac.compare_digest(given, value):
                found = token
        return found


class TokenBackend(AuthenticationBackend):
    """The user of a request is the `Token` in its Authorization header or its cookie."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens, self._clock = tokens, clock

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, Token]:
        if not self._tokens:
            return AuthCredentials(), ANYBODY
        bearer = conn.headers.get("authorization")
        if bearer is None:
            token = self._tokens.of_cookie(conn.cookies.get(COOKIE, ""), self._clock.wall())
        else:
            kind, _, text = bearer.partition(" ")
            token = self._tokens.of_bearer(text.strip()) if kind.lower() == "bearer" else None
        path = conn.scope["path"]
        if token is None and path not in OPEN and not path.startswith("/static/"):
            raise ProblemError(
                401, "This server requires a token: send it as `Authorization: Bearer TOKEN`, or sign in at /."
            )
        return AuthCredentials(), token or GUEST


def _signature(token: Token, signed: str) -> str:
    mac = hmac.new(token.digest, b"ostta cookie " + signed.encode("utf-8", "replace"), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def read_tokens(path: Path) -> Tokens:
    """Read a token file: one token of at least 16 characters per line, then optional session ids or name patterns,
    or /metrics.

    # starts a comment.
    """
    with translate_errors("token-file-invalid", f"The token file {path} is not UTF-8 text.", UnicodeDecodeError):
        lines = read_regular(path, "token file").decode().splitlines()
    tokens: list[Token] = []
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words[0]) < MIN_TOKEN_LENGTH or not _TOKEN.fullmatch(words[0]):
            raise Error(
                f"Line {number} of the token file {path} has no token of at least {MIN_TOKEN_LENGTH} letters, digits "
                "and . _ ~ + / = -: make one with `openssl rand -hex 32`.",
                code="token-file-invalid",
            )
        if any(hmac.compare_digest(words[0], other.text) for other in tokens):
            raise Error(
                f"Line {number} of the token file {path} has a token that is there already.", code="token-file-invalid"
            )
        tokens.append(Token(words[0], tuple(words[1:])))
    if not tokens:
        raise Error(
            f"The token file {path} has no token: make one with `openssl rand -hex 32`.", code="token-file-invalid"
        )
    return Tokens(tokens)


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach an address."""
    address = _address_of(host)
    return host == "localhost" or (address is not None and address.is_loopback)


class Names:
    """The allowed host names, which prevent DNS rebinding, and the allowed origins of web pages.

    >>> Names(["cameras.example"]).knows_host("cameras.example:8000")
    True
    """

    def __init__(self, hosts: Sequence[str], origins: Sequence[str] = ()) -> None:
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._origins = frozenset(origins)

    def knows_host(self, host: str) -> bool:
        """Return whether a Host header is allowed. Numeric addresses always are, because DNS cannot redirect them."""
        name = host.lower()
        if not name.endswith("]") and name.rpartition(":")[2].isdecimal():
            name = name.rpartition(":")[0]
        return name in self._hosts or _is_numeric(name)

    def knows_origin(self, origin: str, host: str) -> bool:
        """Return whether a page of this origin may use the server: its own page, or one that the operator named."""
        if origin in self._origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


@lru_cache(4096)
def network_of(host: str) -> str:
    """Return the key for limits per client address: an IPv4 address, or the /64 network of an IPv6 address.

    >>> network_of("192.0.2.7"), network_of("2001:db8::1")
    ('192.0.2.7', '2001:db8::/64')
    """
    address = _address_of(host)
    if address is None:
        return host[:100]
    if isinstance(address, IPv4Address):
        return host
    return str(address.ipv4_mapped or ip_network((int(address) >> 64 << 64, 64)))


@lru_cache(256)
def _is_numeric(host: str) -> bool:
    """Return whether a host is a numeric address; an IPv6 address may have brackets."""
    return _address_of(host[1:-1] if host.startswith("[") and host.endswith("]") else host) is not None


def _address_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def proxies_of(given: Sequence[str]) -> tuple[str, ...]:
    """Return the networks of proxies whose `X-Forwarded-*` headers are used.

    >>> proxies_of(["192.0.2.1"])
    ('192.0.2.1/32',)
    """
    networks = []
    for text in given:
        message = (
            f"{text!r} is not the address of a proxy: give an address such as 192.0.2.1, or a network such as "
            "10.0.0.0/8."
        )
        with translate_errors("proxy-invalid", message, ValueError):
            networks.append(str(ip_network(text, strict=False)))
    return tuple(networks)


def hosts_of(address: str, given: Sequence[str]) -> tuple[str, ...]:
    """Return the host names of a server at `address`: the address if it is a name, and those of the operator."""
    return (*(() if _is_numeric(address) else (address,)), *given)
