"""Grids of runs: which are to be done, where they are carried out, and how far they are."""
