"""Encode images once, then compare methods on the stored features.

    python examples/stored_features.py

The images are included in ostta. For your own, see `ostta features extract --help`.
"""

import tempfile
from pathlib import Path

import ostta
from ostta.bench.extract import extract
from ostta.bench.spec import RunSpec

path = Path(tempfile.mkdtemp()) / "snow.npz"
spec = RunSpec(backbone="embedded", desired="sample:cifar10c", undesired="sample:mnist", limit=100)
file = extract(spec, None, path)
print(f"{len(file.labels)} images, {file.width} numbers each, {path.stat().st_size / 1e3:.0f} kB")

# The file is a backbone without an image tower, and a source of features with names.
for method in ("zero_shot", "tda", "dpe"):
    adapter = ostta.load(f"features:{path}", file.classes, method=method)
    with ostta.sources.open(f"features:{path}") as source:
        known = [prediction.known for prediction in adapter.stream(source)]
    right = sum(known[number] == (label >= 0) for number, label in enumerate(file.labels))
    print(f"{method:10} {right} of {len(known)} images correctly separated into known and unknown")
