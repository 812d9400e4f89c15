"""Run two streams with different classes on one copy of the model, and save one of them.

    python examples/many_streams.py

The images are included. Your program passes the frames of its cameras.
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

# A stream has the same state file as an adapter.
path = Path(tempfile.mkdtemp()) / "door.ostta"
pool.save("door", path)
print(ostta.restore(path))
