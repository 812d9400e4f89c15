"""How a stream is put together."""

from __future__ import annotations

from .single import Sample, SingleDomain, Source

__all__ = ["Sample", "SingleDomain", "Source"]
