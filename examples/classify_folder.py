"""Classify the images of a folder, and reject unknown ones.

    python examples/classify_folder.py photos "cat,dog,ship" openai/clip-vit-base-patch16

Without arguments, the script uses 80 included images, half of them digits, and the included small model.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

import ostta
from ostta.data import open_dataset

if len(sys.argv) > 2:
    folder, classes = Path(sys.argv[1]), sys.argv[2].split(",")
else:
    folder = Path(tempfile.mkdtemp())
    snowy, digits = open_dataset("sample:cifar10c"), open_dataset("sample:mnist")
    classes = list(snowy.classes)
    for number in range(40):
        snowy.image(number).save(folder / f"{number:03}-photo.png")
        digits.image(number).save(folder / f"{number:03}-digit.png")

# The recommended profile. Instead of "embedded", any CLIP or SigLIP of the hub can be used.
adapter = ostta.load(sys.argv[3] if len(sys.argv) > 3 else "embedded", classes)
answers = Counter()
# A source reads folders, globs, archives, videos, cameras and addresses. Each image is processed once, in order.
with ostta.sources.open(folder) as source:
    for prediction in adapter.stream(source):
        if prediction.verdict is None:  # the file cannot be read; `reason` says why
            print(f"{prediction.name}: {prediction.reason}")
            continue
        answers[prediction.label or "unknown"] += 1
for answer, count in answers.most_common():
    print(f"{count:5} {answer}")
