"""Run two cameras with different classes on one copy of the model, and save one of them.

    python examples/many_streams.py

The images ship with ostta; a program of yours passes frames of its cameras.
"""

import tempfile
from pathlib import Path

import ostta
from ostta.data import open_dataset

photos, digits = open_dataset("sample:cifar10"), open_dataset("sample:mnist")
pool = ostta.StreamPool("embedded")
pool.add("door", ["cat", "dog", "horse"])
pool.add("harbour", ["ship", "airplane"], method="tda")

# One image of each stream in one batch.
for number in range(40):
    frame = photos.image(number) if number % 2 else digits.image(number)
    answers = pool.step({"door": frame, "harbour": photos.image(number)})
for name, answer in answers.items():
    print(f"{name}: {answer}")

# The state file of a stream is that of an adapter.
path = Path(tempfile.mkdtemp()) / "door.ostta"
pool.save("door", path)
print(ostta.restore(path))
