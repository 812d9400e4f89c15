"""Expect an error by its code. Messages may change; `tests/sentences.txt` lists all of them."""

from __future__ import annotations

from typing import Any

import pytest

from ostta import Error


def raises(code: str, match: str | None = None) -> Any:
    """Expect an `ostta.Error` with this code. `match` checks a value in the message."""
    return pytest.raises(Error, match=match, check=lambda problem: problem.code == code)
