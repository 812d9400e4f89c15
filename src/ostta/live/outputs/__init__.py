"""The output folder of a stream.

folder.py     the folder as a whole, consistent with the journal
table.py      predictions.csv and predictions.parquet
pictures.py   files sorted by answer, pictures with the answer below, examples for the page
record.py     which pictures were written, so that no other file is removed
names.py      file names that are valid on every system
"""

from __future__ import annotations

from .folder import OutputFolder, OutputOptions, check_unused

__all__ = ["OutputFolder", "OutputOptions", "check_unused"]
