"""Images, data sets, views of an image, and corruptions."""

from .by_name import open_dataset
from .class_names import parse_classes
from .corruptions import CORRUPTIONS, corrupt, corruption_names
from .dataset import Dataset
from .images import ImageSource, read_image, to_rgb
from .names import DatasetRow, dataset_names
from .views import Views, augmented, canonical, pixels_to_tensor

__all__ = [
    "CORRUPTIONS",
    "Dataset",
    "DatasetRow",
    "ImageSource",
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
