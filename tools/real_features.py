"""Convert feature arrays of real backbones to the feature files of the suites decide/real and decide/order.

    python tools/real_features.py FOLDER DATA
    ostta bench run decide/real --data DATA  # or decide/order

FOLDER has one or more of these files, whose arrays are unit rows:

    clip_b32_imagenette.npz   features, labels, classes; text, the embeddings of the classes first (CLIP ViT-B/32)
    clip_b32_cifar500.npz     the same of 500 CIFAR-10 images, enlarged
    clip_b32_words.npz        names, text: embeddings of words (optional)
    effnet0_imagenette.npz    clean, snow: features of known images, with labels, classes and text;
                              others, svhn: features of unknown
                              images; words, word_names (EfficientNet-lite0)

DATA/features receives one file for each of the two sets of CLIP images, of which the suites make splits in known and
unknown classes, and one file for each of the four sets of EfficientNet features. The prior centre of each set of CLIP
images is the mean of the other; that of EfficientNet comes from the photographs that ship with ostta.

The streams can be composed without ostta: with rng = numpy.random.default_rng([7, seed]), rng.permutation(known)[:1000]
are the known images, the first round(ratio * known) entries of rng.permutation(unknown) the unknown ones, and a third
permutation is the order.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ostta import Error, backbones
from ostta.centre import centre_of
from ostta.feature_files import FOLDER, FeatureFile, Metadata, write_features

# Each file of CLIP features, with the name of its images and the file whose mean is its prior centre.
CLIP = {
    "clip_b32_imagenette.npz": ("Imagenette", "clip_b32_cifar500.npz"),
    "clip_b32_cifar500.npz": ("CIFAR-10 test images", "clip_b32_imagenette.npz"),
}
CLIP_WORDS, EFFNET = "clip_b32_words.npz", "effnet0_imagenette.npz"
CLIP_BACKBONE, EFFNET_BACKBONE = "openai/clip-vit-base-patch32", "efficientnet-lite0"
# Each backbone's temperature; that of EfficientNet was chosen for this project, as its classifier has none.
CLIP_SCALE, EFFNET_SCALE = 100.0, 30.0


def convert(folder: Path, data: Path) -> list[FeatureFile]:
    """Write the feature files of the source files that are in `folder`."""
    written = []
    words, word_rows = (
        _words(_load(folder / CLIP_WORDS), "names", "text") if (folder / CLIP_WORDS).exists() else ((), None)
    )
    for name, (images, other) in CLIP.items():
        if not (folder / name).exists():
            continue
        arrays, centre = _load(folder / name), folder / other
        classes = arrays["classes"].tolist()
        written.append(
            write_features(
                data / FOLDER / name,
                arrays["features"],
                arrays["labels"],
                classes,
                arrays["text"][: len(classes)],
                CLIP_SCALE,
                _metadata(CLIP_BACKBONE, images, len(arrays["features"])),
                words,
                word_rows,
                centre=_load(centre)["features"].astype(np.float32).mean(0) if centre.exists() else None,
            )
        )
    if (folder / EFFNET).exists():
        written += _effnet(_load(folder / EFFNET), data)
    if not written:
        raise Error(f"There is none of {', '.join((*CLIP, EFFNET))} in {folder}.")
    return written


def _effnet(arrays: dict[str, Any], data: Path) -> list[FeatureFile]:
    classes, text = arrays["classes"].tolist(), arrays["text"]
    words, rows = _words(arrays, "word_names", "words")
    photos = centre_of(backbones.load("photos"))
    written = []
    for name in ("clean", "snow", "others", "svhn"):
        known = name in ("clean", "snow")
        features = arrays[name]
        written.append(
            write_features(
                data / FOLDER / f"effnet0_{name}.npz",
                features,
                arrays["labels"] if known else np.full(len(features), -1),
                classes if known else (),
                text if known else text[:0],
                EFFNET_SCALE,
                _metadata(EFFNET_BACKBONE, f"Imagenette {name}" if known else name, len(features), known),
                words if known else (),
                rows,
                centre=None if photos is None else photos.numpy(),
            )
        )
    return written


def _load(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _words(arrays: dict[str, Any], names: str, rows: str) -> tuple[Sequence[str], Any]:
    """The words and their embeddings; of a word that is there several times, the first."""
    words, first = np.unique(arrays[names], return_index=True)
    order = np.argsort(first)
    return words[order].tolist(), arrays[rows][first[order]]


def _metadata(backbone: str, name: str, images: int, known: bool = True) -> Metadata:
    side = "known" if known else "unknown"
    return Metadata(backbone, sets=({"name": name, "side": side, "images": images, "origin": "features", "note": ""},))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the source files")
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of your data sets")
    given = parser.parse_args()
    try:
        for file in convert(given.folder, given.data):
            print(f"{file.path}: {len(file.features)} images, {len(file.classes)} classes, {len(file.words)} words")
    except Error as problem:
        parser.exit(1, f"{problem}\n")


if __name__ == "__main__":
    main()
