"""Reading images and data sets, views of an image, and corruptions."""

from .by_name import Dataset, DatasetRow, dataset_names, open_dataset
from .class_names import parse_classes
from .corruptions import CORRUPTIONS, corrupt, corruption_names
from .images import ImageSource, read_image, to_rgb
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
