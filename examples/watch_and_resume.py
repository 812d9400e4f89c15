"""Guard a stream, save the state, and resume from it as after a restart.

    python examples/watch_and_resume.py clip.mp4 "cat,dog,ship"     a video, a folder, a camera's number, an address

Without arguments, the script uses included images.
"""

import itertools
import sys
import tempfile
from pathlib import Path

import ostta
from ostta.data import open_dataset

STATE = Path(tempfile.mkdtemp()) / "watch.ostta"
if len(sys.argv) > 2:
    images, classes = ostta.sources.open(sys.argv[1], every=5), sys.argv[2].split(",")
else:
    snowy, digits = open_dataset("sample:cifar10c"), open_dataset("sample:mnist")
    images = (image for number in range(30) for image in (snowy.image(number), digits.image(number)))
    classes = snowy.classes

# ROSITA trains the LayerNorms. The guard compares it with the frozen model and undoes harmful updates.
adapter = ostta.load("embedded", classes, method="rosita", guard=True)
stream = iter(images)
for prediction in adapter.stream(itertools.islice(stream, 40)):
    for event in prediction.events:
        print(f"image {adapter.steps}: {event.kind}: {event.sentence}")
adapter.save(STATE)  # atomic: after a crash, the file is the previous one

# After a restart, the adapter has the same weights, banks, scores and guard, and gives the same answers.
again = ostta.Adapter.restore(STATE)
print(again)
updates = sum(prediction.adapted for prediction in again.stream(stream))
print(f"{again.steps} images, {updates} updates since the restart, state in {STATE.stat().st_size / 1e3:.0f} kB")
again.freeze()  # from here on, it answers but no longer learns; see also thaw() and roll_back()
