"""Expect an error by its code: sentences may change, and `tests/sentences.txt` has all of them."""

from __future__ import annotations

from typing import Any

import pytest

from ostta import Error


def raises(code: str, match: str | None = None) -> Any:
    """`pytest.raises` for an `ostta.Error` with this code; `match` is for a value that the sentence must have."""
    return pytest.raises(Error, match=match, check=lambda problem: problem.code == code)
