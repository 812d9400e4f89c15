"""Name what an unknown image resembles, with words that are not classes.

    python examples/name_unknown.py photo.jpg "dog,elephant,panda"

Without arguments, the script uses included photographs.
"""

import sys

import ostta
from ostta.data import open_dataset

if len(sys.argv) > 2:
    images, classes = sys.argv[1:-1], sys.argv[-1].split(",")
else:
    known, unknown = open_dataset("sample:photos"), open_dataset("sample:photos_unknown")
    images = [photos.image(3 * number) for number in range(24) for photos in (known, unknown)]
    classes = known.classes

# `photos` compares images with its other ImageNet classes. For a CLIP, set words="everyday" or a list of names.
adapter = ostta.load("photos", classes)
for prediction in adapter.stream(images):
    if prediction.most_like is not None and not prediction.undecided:
        print(f"unknown ({prediction.probability:.2f}), most like {prediction.most_like}")
