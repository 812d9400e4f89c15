"""Reading images and data sets, views of an image, and corruptions."""

from ostta.data.class_names import parse_classes
from ostta.data.corruptions import CORRUPTIONS, corrupt, corruption_names
from ostta.data.datasets import Dataset, DatasetRow, dataset_names, open_dataset
from ostta.data.images import read_image, to_rgb
from ostta.data.views import Views, augmented, canonical, pixels_to_tensor

__all__ = [
    "CORRUPTIONS",
    "Dataset",
    "DatasetRow",
    "Views",
    "augmented",
    "canonical",
    "corrupt",
    "corruption_names",
    "dataset_names",
    "open_dataset",
    "parse_classes",
    "pixels_to_tensor",
    "read_image",
    "to_rgb",
]
