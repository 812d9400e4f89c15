"""URLs and checksums of data set files.

A checksum is listed only if several independent publishers agree on it; `stated_by` names its source. For other files,
the checksum of the first download is recorded and compared with later downloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Form = Literal["file", "tar", "zip", "gz"]


@dataclass(frozen=True, slots=True)
class Download:
    """One file to download.

    `makes` lists the resulting paths below ROOT. From an archive, only the members with these names are extracted.
    """

    url: str
    makes: tuple[str, ...]
    form: Form = "file"
    md5: str = ""
    stated_by: str = ""

    @property
    def file(self) -> str:
        """File name during the download."""
        return self.makes[0].replace("/", "-") + ("" if self.form == "file" else f".{self.form}")


# Downloads that together provide a split.
Source = tuple[Download, ...]

_HUB = "https://huggingface.co/datasets"
_ZENODO = "https://zenodo.org/records"
_BOSTON = "http://csr.bu.edu/ftp"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_SVHN = "http://ufldl.stanford.edu/housenumbers"


def _hub(repository: str, folder: str, name: str, split: str) -> Source:
    url = f"{_HUB}/{repository}/resolve/main/{folder}/{split}-00000-of-00001.parquet"
    return (Download(url, (f"{name}/{split}.parquet",)),)


def _idx(prefix: str, images: str, labels: str) -> Source:
    files = {f"{prefix}-images-idx3-ubyte": images, f"{prefix}-labels-idx1-ubyte": labels}
    return tuple(
        Download(f"{_MNIST}/{file}.gz", (f"mnist/{file}",), "gz", md5, "torchvision") for file, md5 in files.items()
    )


def _mat(split: str, md5: str) -> Source:
    file = f"{split}_32x32.mat"
    return (Download(f"{_SVHN}/{file}", (f"svhn/{file}",), "file", md5, "torchvision"),)


def _domainnet_sources(domain: str, archive: str, md5: str) -> Mapping[str, tuple[Source, ...]]:
    images = Download(
        f"{_BOSTON}/visda/2019/multi-source/{archive}",
        (f"domainnet/{domain}",),
        "zip",
        md5,
        "several projects that use it",
    )
    lists = f"{_BOSTON}/visda/2019/multi-source/domainnet/txt"
    return {
        split: ((images, Download(f"{lists}/{domain}_{split}.txt", (f"domainnet/{domain}_{split}.txt",))),)
        for split in ("test", "train")
    }


_TINY = (
    Download(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        ("tiny-imagenet-200",),
        "zip",
        "90528d7ca1a48142e341f4ef8d21d0de",
        "several projects that use it",
    ),
)

# Alternative sources by data set and split. The first reachable source is used.
SOURCES: Mapping[str, Mapping[str, tuple[Source, ...]]] = MappingProxyType(
    {
        "cifar10": {split: (_hub("uoft-cs/cifar10", "plain_text", "cifar10", split),) for split in ("test", "train")},
        "cifar100": {split: (_hub("uoft-cs/cifar100", "cifar100", "cifar100", split),) for split in ("test", "train")},
        "mnist": {
            "test": (
                _hub("ylecun/mnist", "mnist", "mnist", "test"),
                _idx("t10k", "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
            ),
            "train": (
                _hub("ylecun/mnist", "mnist", "mnist", "train"),
                _idx("train", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432"),
            ),
        },
        "svhn": {
            "test": (_mat("test", "eb5a983be6a315427106f1b164d9cef3"),),
            "train": (_mat("train", "e26dedcc434d2e4c54c9b2d4a06d8373"),),
            "extra": (_mat("extra", "a93ce644f1a588dc4d68dda5feec44a7"),),
        },
        "tiny_imagenet20": {"train": (_TINY,), "val": (_TINY,)},
        "imagenetr": {
            "test": (
                (
                    Download(
                        "https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar",
                        ("imagenet-r",),
                        "tar",
                        "a61312130a589d0ca1a8fca1f2bd3337",
                        "several projects that use it",
                    ),
                ),
            )
        },
        "visda": {"validation": ((Download(f"{_BOSTON}/visda17/clf/validation.tar", ("visda/validation",), "tar"),),)},
        "domainnet_clipart": _domainnet_sources(
            "clipart", "groundtruth/clipart.zip", "cd0d8f2d77a4e181449b78ed62bccf1e"
        ),
        "domainnet_painting": _domainnet_sources(
            "painting", "groundtruth/painting.zip", "1ae32cdb4f98fe7ab5eb0a351768abfd"
        ),
        "domainnet_sketch": _domainnet_sources("sketch", "sketch.zip", "658d8009644040ff7ce30bb2e820850f"),
    }
)


def _zenodo(record: int, file: str, makes: tuple[str, ...], md5: str) -> Source:
    return (Download(f"{_ZENODO}/{record}/files/{file}.tar", makes, "tar", md5, "Zenodo"),)


# ImageNet-C consists of four archives of 7 to 22 GB, each with a group of corruptions.
_IMAGENET_C = {
    "noise": ("e80562d7f6c3f8834afb1ecf27252745", ("gaussian_noise", "shot_noise", "impulse_noise")),
    "blur": ("2d8e81fdd8e07fef67b9334fa635e45c", ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur")),
    "weather": ("33ffea4db4d93fe4a428c40a6ce0c25d", ("snow", "frost", "fog", "brightness")),
    "digital": (
        "89157860d7b10d5797849337ca2e5c03",
        ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    ),
}

# Published corrupted files by data set and published corruption name. An empty name stands for all corruptions.
PUBLISHED_SOURCES: Mapping[str, Mapping[str, Source]] = MappingProxyType(
    {
        "cifar10": {"": _zenodo(2535967, "CIFAR-10-C", ("CIFAR-10-C",), "56bf5dcef84df0e2308c6dcbcbbd8499")},
        "cifar100": {"": _zenodo(3555552, "CIFAR-100-C", ("CIFAR-100-C",), "11f0ed0f1191edbf9fa23466ae6021d3")},
        "imagenet": {
            name: _zenodo(2235448, file, tuple(f"ImageNet-C/{member}" for member in members), md5)
            for file, (md5, members) in _IMAGENET_C.items()
            for name in members
        },
    }
)
