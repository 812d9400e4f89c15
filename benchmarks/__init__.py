"""Timings, as ratios inside one process. Nothing here is part of the test suite."""
