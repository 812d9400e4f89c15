"""One run: from its spec to its result file."""
