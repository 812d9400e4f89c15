"""Export an image tower with class embeddings to ONNX Runtime, and compare its answers with those of torch.

python examples/export_onnx.py
"""

import tempfile
from pathlib import Path

import ostta
from ostta.data import open_dataset

photos = open_dataset("sample:cifar10")
folder = Path(tempfile.mkdtemp()) / "exported"
backbone = ostta.backbones.load("embedded")
about = ostta.backbones.export(backbone, photos.classes, folder)
print(f"largest difference of unit features: {about.largest_difference:.0e}")

# The export works with methods that do not train the image tower.
in_torch = ostta.load(backbone, photos.classes, method="tda")
in_onnx = ostta.load(f"onnx:{folder}", photos.classes, method="tda")
images = [photos.image(number) for number in range(40)]
pairs = [(in_torch.step(image), in_onnx.step(image)) for image in images]
print(f"{sum(a.label == b.label for a, b in pairs)} of {len(pairs)} answers are the same")
