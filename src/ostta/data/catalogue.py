"""Catalogue of supported data sets: paths below the data folder, image counts, and download instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Kind = Literal["parquet", "idx", "mat", "folder", "inner_folder", "list", "annotations", "shards"]


@dataclass(frozen=True, slots=True)
class Expected:
    """Image counts of the publisher (`official`) and of the paper, with a remark on the difference."""

    official: int
    paper: int | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """A possible path and format of a split below ROOT.

    copies:    notes on incomplete public copies, by their number of images.
    lossless:  whether the data set was published in a lossless format, so that a table of JPEG images is not exact.
    """

    kind: Kind
    path: str
    copies: Mapping[int, str] = field(default_factory=dict)
    lossless: bool = True


@dataclass(frozen=True, slots=True)
class Split:
    """A split of a data set. Layouts are tried in order.

    With `any_prefix`, any number of images from the start of the data set is a valid subset.
    """

    expected: Expected
    layouts: tuple[Layout, ...]
    any_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """Published corrupted files of a clean data set, which take precedence over computed corruptions.

    `how` may contain `{corruption}`.
    """

    folder: str
    form: Literal["npy", "folder"]
    expected: Expected
    how: str

    def instructions(self, corruption: str = "snow") -> str:
        """Return the download instructions for one corruption."""
        return self.how.format(corruption=corruption)


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A data set. The first split is the default. `classes` is the name of a list in class_lists.json.

    `how` may contain `{split}`, the name of a split, and `{at}`, the suffix of the data set name for that split.
    """

    classes: str
    splits: Mapping[str, Split]
    how: str
    published: Published | None = None
    clean: bool = True

    @property
    def default_split(self) -> str:
        return next(iter(self.splits))

    def instructions(self, split: str = "") -> str:
        """Return the download instructions for a split, by default the first."""
        split = split or self.default_split
        at = "" if split == self.default_split else f":{split}"
        return self.how.format(split=split, at=at, idx=IDX_PREFIXES.get(split, ""))


# File name prefixes of the MNIST idx files, by split.
IDX_PREFIXES = MappingProxyType({"test": "t10k", "train": "train"})


def _parquet(folder: str, **counts: int) -> Mapping[str, Split]:
    """Return splits that are one parquet file each, by their number of images."""
    return {
        split: Split(Expected(count), (Layout("parquet", f"{folder}/{split}.parquet"),))
        for split, count in counts.items()
    }


def _cifar(name: str, published: str, record: int) -> CatalogueEntry:
    how = (
        f"Run `ostta data get {name}{{at}}`, or put the {{split}} split of the hub's uoft-cs/{name} at "
        f"ROOT/{name}/{{split}}.parquet."
    )
    how_published = f"Run `ostta data get {name}c`, or unpack {published}.tar (zenodo.org/records/{record}) into ROOT."
    files = Published(published, "npy", Expected(10_000, 10_000), how_published)
    return CatalogueEntry(name, _parquet(name, test=10_000, train=50_000), how, files)


def _mnist(split: str, expected: Expected) -> Split:
    idx = f"{IDX_PREFIXES[split]}-images-idx3-ubyte"
    folders = ("mnist", "mnist/raw", "MNIST/raw")
    layouts = (Layout("parquet", f"mnist/{split}.parquet"), *(Layout("idx", f"{folder}/{idx}") for folder in folders))
    return Split(expected, layouts)


def _svhn(split: str, expected: Expected, copies: Mapping[int, str] = MappingProxyType({})) -> Split:
    layouts = (Layout("mat", f"svhn/{split}_32x32.mat"), Layout("parquet", f"svhn/{split}.parquet", copies))
    return Split(expected, layouts)


def _domainnet(domain: str, test: int, train: int, paper: int) -> CatalogueEntry:
    remark = (
        f"the paper's table has {paper:,} known images, exactly twice the official test list: "
        "most likely both sides of the stream were counted"
    )
    files = {"test": Expected(test, paper, remark), "train": Expected(train)}
    splits = {
        split: Split(
            expected,
            tuple(
                Layout("list", f"{folder}/{domain}_{split}.txt")
                for folder in ("domainnet", "domainnet/txt", "DomainNet", "DomainNet/txt")
            ),
        )
        for split, expected in files.items()
    }
    how = (
        f"Run `ostta data get domainnet_{domain}{{at}}`, or unpack {domain}.zip of DomainNet (ai.bu.edu/M3SDA) into "
        f"ROOT/domainnet, with {domain}_{{split}}.txt beside it."
    )
    return CatalogueEntry("domainnet", splits, how)


def _ccc() -> Mapping[str, Split]:
    """Return the 27 sequences. The first is the one used by the code of the paper."""
    names = [
        f"baseline_{target}_transition+speed_{speed}_seed_{seed}"
        for target in (20, 0, 40)
        for seed in (44, 43, 45)
        for speed in (1000, 2000, 5000)
    ]
    remark = (
        "the paper's 300,000 are both sides together, and its code asks for the first 150,000 of the sequence; a "
        "shard has 25,000, and any number of shards from the first on will do"
    )
    # The published generator writes the target as a decimal number, unlike the folders on the server.
    return {
        name: Split(
            Expected(7_500_000, 300_000, remark),
            (
                Layout("shards", f"CCC/{name}"),
                Layout("shards", f"CCC/{name.replace('_transition', '.0_transition', 1)}"),
            ),
            any_prefix=True,
        )
        for name in names
    }


CATALOGUE: Mapping[str, CatalogueEntry] = MappingProxyType(
    {
        "cifar10": _cifar("cifar10", "CIFAR-10-C", 2535967),
        "cifar100": _cifar("cifar100", "CIFAR-100-C", 3555552),
        "imagenet": CatalogueEntry(
            "imagenet",
            {"val": Split(Expected(50_000), (Layout("folder", "imagenet/val"), Layout("folder", "ImageNet/val")))},
            "Ask for ImageNet at image-net.org, whose licence you must accept yourself, and put the validation "
            "images into ROOT/imagenet/val, one folder per WordNet id.",
            Published(
                "ImageNet-C",
                "folder",
                Expected(50_000, 50_000),
                "Run `ostta data get imagenetc --corruption {corruption}`, or unpack the archives of ImageNet-C "
                "(zenodo.org/records/2235448) into ROOT/ImageNet-C.",
            ),
        ),
        "imagenetr": CatalogueEntry(
            "imagenet_r",
            {
                "test": Split(
                    Expected(30_000, 30_000, "the paper's table has 30,000, and its text says 50,000 once"),
                    (Layout("folder", "imagenet-r"),),
                )
            },
            "Run `ostta data get imagenetr`, or unpack imagenet-r.tar (github.com/hendrycks/imagenet-r) into ROOT.",
        ),
        "visda": CatalogueEntry(
            "visda",
            {
                "validation": Split(
                    Expected(55_388, 50_000, "the paper takes 50,000 of the 55,388, shuffled and then cut"),
                    tuple(
                        layout
                        for folder in ("visda", "VisDA", "visda-2017", "VISDA-C")
                        for layout in (
                            Layout("list", f"{folder}/validation/image_list.txt"),
                            Layout("folder", f"{folder}/validation"),
                        )
                    ),
                )
            },
            "Run `ostta data get visda`, or unpack validation.tar of VisDA-2017's classification track into "
            "ROOT/visda.",
        ),
        "domainnet_clipart": _domainnet("clipart", 14_604, 33_525, 29_208),
        "domainnet_painting": _domainnet("painting", 21_850, 50_416, 43_700),
        "domainnet_sketch": _domainnet("sketch", 20_916, 48_212, 41_832),
        "ccc": CatalogueEntry(
            "imagenet",
            _ccc(),
            "Put shards of a CCC sequence at ROOT/CCC/NAME/serial_00000.tar and on, either made with generate.py of "
            "github.com/oripress/CCC from ImageNet's validation images or from the server that its eval.py names.",
            clean=False,
        ),
        "mnist": CatalogueEntry(
            "digits",
            {
                "test": _mnist(
                    "test",
                    Expected(10_000, 10_000, "the paper's code takes its undesired digits from the training split"),
                ),
                "train": _mnist("train", Expected(60_000, 60_000)),
            },
            "Run `ostta data get mnist{at}`, or put the {split} split of the hub's ylecun/mnist at "
            "ROOT/mnist/{split}.parquet, or the original idx files {idx}-*, unpacked, into ROOT/mnist.",
        ),
        "svhn": CatalogueEntry(
            "digits",
            {
                "test": _svhn(
                    "test",
                    Expected(
                        26_032,
                        10_000,
                        "the paper's text says 50,000 for training and 10,000 for testing, where there are 73,257 and "
                        "26,032; its code takes its undesired digits from the training split",
                    ),
                    {
                        10_000: "SVHN test digits re-cropped from the full photos: "
                        "not pixel-identical to the official 32x32 crops"
                    },
                ),
                "train": _svhn(
                    "train", Expected(73_257, 50_000, "the paper's text says 50,000, where there are 73,257")
                ),
                "extra": _svhn("extra", Expected(531_131)),
            },
            "Run `ostta data get svhn{at}`, or put {split}_32x32.mat (ufldl.stanford.edu/housenumbers) into "
            "ROOT/svhn, or a parquet file of 32x32 digits at ROOT/svhn/{split}.parquet.",
        ),
        "caltech_photos": CatalogueEntry(
            "caltech_photos",
            _parquet("caltech_photos", known=320, near=320, dev_known=256, dev_near=256),
            "Make ROOT/caltech_photos/{split}.parquet with tools/make_photo_sets.py from photographs of Caltech-101 "
            "(data.caltech.edu/records/mzrjq-6wc02): 16 of each class, four sets without a class in common.",
        ),
        "tiny_imagenet20": CatalogueEntry(
            "tiny_imagenet20",
            {
                "train": Split(
                    Expected(10_000, 10_000, "500 training images of each of the 20 classes"),
                    (
                        Layout("inner_folder", "tiny-imagenet-200/train"),
                        Layout(
                            "parquet",
                            "tiny_imagenet20/train.parquet",
                            {
                                5_000: "250 training images of each of the 20 Tiny-ImageNet classes that the paper "
                                "uses as unknowns, re-encoded as JPEG"
                            },
                            lossless=False,
                        ),
                    ),
                ),
                "val": Split(
                    Expected(1_000),
                    (
                        Layout("annotations", "tiny-imagenet-200/val/val_annotations.txt"),
                        Layout("parquet", "tiny_imagenet20/val.parquet", lossless=False),
                    ),
                ),
            },
            "Run `ostta data get tiny_imagenet20{at}`, or unpack tiny-imagenet-200.zip (cs231n.stanford.edu) into "
            "ROOT, or put the paper's 20 classes at ROOT/tiny_imagenet20/{split}.parquet.",
        ),
    }
)
