"""What a stream leaves behind in a folder.

folder.py     the folder as a whole, in agreement with the journal
table.py      predictions.csv and predictions.parquet
pictures.py   files sorted by answer, pictures with the answer drawn in, examples for the page
names.py      names that every system can have
"""

from __future__ import annotations

from .folder import OutputFolder, Wanted

__all__ = ["OutputFolder", "Wanted"]
