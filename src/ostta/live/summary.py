"""Summary that `ostta stream` prints at the end."""

from __future__ import annotations

import numpy as np

from ..core.banks import TRUSTED
from ..core.otsu import explained_share
from ..core.text import counted
from .digest import Digest
from .memory import Memory

# Maximum number of listed classes.
MOST_CLASSES = 12
# Range of the rejected share that indicates an arbitrary split: a threshold learned from a stream without known images,
# or without unknown images, rejected one third to two thirds of the sample images.
ABOUT_HALF = (1 / 3, 2 / 3)
# Share of the scores' variance that a split in two explains, where there are two groups. It is 0.64 for one Gaussian
# group, 0.75 for uniform scores, and 0.82 for two groups of equal size whose means are 4.3 standard deviations apart.
TWO_GROUPS = 0.82
# Expected error rate above which a warning is shown.
MOST_DOUBT = 0.2
ARBITRARY_SPLIT = (
    "About half of the images were rejected, and the scores do not form two separate groups. The threshold may divide "
    "images of one kind: all of them, or none of them, may show your classes. Check some accepted and some rejected "
    "images before you use the answers."
)


def summary(
    digest: Digest, seconds: float, *, skipped: int = 0, dropped: int = 0, memory: Memory | None = None
) -> list[str]:
    """Return the lines of the summary.

    >>> digest = Digest()
    >>> cat = {"row": 1, "image": "a.jpg", "label": "cat", "known": True, "verdict": "reliable_desired", "score": 0.4}
    >>> digest.add(cat)
    >>> summary(digest, 0.5, skipped=3)  # doctest: +NORMALIZE_WHITESPACE
    ['1 image in 0.5 s (2.0 a second): 1 known (100.0 %), 0 unknown.', 'cat 1',
     '3 images were judged before and left out.']
    """
    if not digest.images and skipped:
        return [f"Nothing new: {_were(skipped)} judged before and left out."]
    share = "" if digest.accepted_share is None else f" ({100 * digest.accepted_share:.1f} %)"
    undecided = f", {digest.undecided} undecided (warming up)" if digest.undecided else ""
    rate = f" ({digest.images / seconds:.1f} a second)" if seconds > 0 else ""
    lines = [
        f"{counted(digest.images, 'image')} in {seconds:.1f} s{rate}: {digest.accepted} known{share}, "
        f"{digest.rejected} unknown{undecided}."
    ]
    if digest.classes:
        named = [f"{' '.join(name.split())} {count}" for name, count in digest.classes.most_common(MOST_CLASSES)]
        left = len(digest.classes) - len(named)
        lines.append(", ".join(named) + (f", and {counted(left, 'more class', 'more classes')}" if left else ""))
    if memory is not None:
        lines.append(f"Remembered: {memory}; {counted(digest.adapted, 'update')}.")
    troubles = [
        f"{_were(skipped)} judged before and left out" if skipped else "",
        f"{counted(digest.unreadable, 'image')} could not be read" if digest.unreadable else "",
        f"nothing could be seen in {counted(digest.unseen, 'image')}" if digest.unseen else "",
        f"{counted(dropped, 'frame')} dropped, as the source was faster than the model" if dropped else "",
    ]
    sentence = "; ".join(filter(None, troubles))
    if sentence:
        lines.append(f"{sentence[0].upper()}{sentence[1:]}.")
    if digest.kinds:
        kinds = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in digest.kinds.most_common())
        lines.append(f"Events: {kinds}.")
    doubt = warning(digest)
    if doubt is not None:
        lines.append(f"Warning: {doubt[0].lower()}{doubt[1:]}")
    return lines


def warning(digest: Digest) -> str | None:
    """Return a warning about unreliable decisions, based on probabilities or otherwise on scores, or None.

    >>> digest = Digest()
    >>> for number in range(100):
    ...     row = {"row": number, "known": True, "label": "cat", "verdict": "reliable_desired", "score": 1.0}
    ...     digest.add({**row, "probability": 0.7})
    >>> warning(digest)[:97]
    'The model is unsure of its answers: it expects to be wrong about known or unknown for 30 % of the'
    """
    if digest.doubt is None:
        return ARBITRARY_SPLIT if is_split_arbitrary(digest) else None
    if digest.weighed < TRUSTED or digest.doubt <= MOST_DOUBT:
        return None
    return (
        "The model is unsure of its answers: it expects to be wrong about known or unknown for "
        f"{100 * digest.doubt:.0f} % of the images. Check some accepted and some rejected images before you use the "
        "answers."
    )


def is_split_arbitrary(digest: Digest) -> bool:
    """Return whether about half of the images were rejected although the recent scores do not form two groups.

    >>> digest = Digest()
    >>> for number in range(100):
    ...     row = {"row": number, "label": "cat", "verdict": "reliable_desired", "score": number / 100}
    ...     digest.add({**row, "known": number >= 50})
    >>> is_split_arbitrary(digest)
    True
    """
    low, high = ABOUT_HALF
    if digest.accepted_share is None or not low <= 1 - digest.accepted_share <= high:
        return False
    scores = np.array([score for score, known in digest.recent if known is not None])
    return len(scores) >= TRUSTED and explained_share(scores) < TWO_GROUPS


def _were(number: int) -> str:
    return f"{counted(number, 'image')} {'was' if number == 1 else 'were'}"
