"""What a stream was, in a few lines for a person."""

from __future__ import annotations

import numpy as np

from ..core.banks import TRUSTED
from ..core.otsu import explained_share
from ..core.words import counted
from .digest import Digest
from .memory import Memory

# Classes that are named one by one.
MOST_CLASSES = 12
# Shares of rejected images that are "about half": a threshold that is learned from a stream without known images, or without unknown
# ones, rejected a third to two thirds of the sample images.
ABOUT_HALF = (1 / 3, 2 / 3)
# Share of the scores' variance that a split in two explains, where there are two groups. It is 0.64 for one Gaussian group, 0.75 for
# uniform scores, and 0.82 for two groups of equal size whose means are 4.3 standard deviations apart.
TWO_GROUPS = 0.82
# Share of errors that the model itself expects, above which people are warned.
MOST_DOUBT = 0.2
ARBITRARY_SPLIT = (
    "About half of the images were rejected, and the scores do not form two separate groups. The threshold may divide images of one kind: "
    "all of them, or none of them, may show your classes. Check some accepted and some rejected images before you use the answers."
)


def summary(
    digest: Digest, seconds: float, *, skipped: int = 0, dropped: int = 0, memory: Memory | None = None
) -> list[str]:
    """The lines that end `ostta stream`.

    >>> digest = Digest()
    >>> digest.add({"row": 1, "image": "a.jpg", "label": "cat", "known": True, "verdict": "reliable_desired", "score": 0.4})
    >>> summary(digest, 0.5, skipped=3)
    ['1 image in 0.5 s (2.0 a second): 1 accepted (100.0 %), 0 "I don\\'t know".', 'cat 1', '3 images were judged before and left out.']
    """
    if not digest.images and skipped:
        return [f"Nothing new: {_were(skipped)} judged before and left out."]
    share = "" if digest.accepted_share is None else f" ({100 * digest.accepted_share:.1f} %)"
    undecided = f", {digest.undecided} undecided (warming up)" if digest.undecided else ""
    rate = f" ({digest.images / seconds:.1f} a second)" if seconds > 0 else ""
    lines = [
        f"{counted(digest.images, 'image')} in {seconds:.1f} s{rate}: {digest.accepted} accepted{share}, "
        f'{digest.rejected} "I don\'t know"{undecided}.'
    ]
    if digest.classes:
        named = [f"{' '.join(name.split())} {count}" for name, count in digest.classes.most_common(MOST_CLASSES)]
        left = len(digest.classes) - len(named)
        lines.append(", ".join(named) + (f", and {counted(left, 'more class', 'more classes')}" if left else ""))
    if memory is not None:
        lines.append(f"Learned: {memory} remembered, {counted(digest.adapted, 'update')}.")
    troubles = [
        f"{_were(skipped)} judged before and left out" if skipped else "",
        f"{counted(digest.unreadable, 'image')} could not be read" if digest.unreadable else "",
        f"nothing could be seen in {counted(digest.unseen, 'image')}" if digest.unseen else "",
        f"{counted(dropped, 'frame')} dropped, as the source was faster than the model" if dropped else "",
    ]
    told = "; ".join(filter(None, troubles))
    if told:
        lines.append(f"{told[0].upper()}{told[1:]}.")
    if digest.kinds:
        kinds = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in digest.kinds.most_common())
        lines.append(f"Events: {kinds}.")
    found = warning(digest)
    if found is not None:
        lines.append(f"Warning: {found[0].lower()}{found[1:]}")
    return lines


def warning(digest: Digest) -> str | None:
    """A sentence that warns of unreliable decisions: by the probabilities where there are any, else by the scores; None if there is no need.

    >>> digest = Digest()
    >>> for number in range(100):
    ...     digest.add({"row": number, "known": True, "label": "cat", "verdict": "reliable_desired", "score": 1.0, "probability": 0.7})
    >>> warning(digest)[:97]
    'The model is unsure of its answers: it expects to be wrong about known or unknown for 30 % of the'
    """
    if digest.doubt is None:
        return ARBITRARY_SPLIT if is_split_arbitrary(digest) else None
    if digest.weighed < TRUSTED or digest.doubt <= MOST_DOUBT:
        return None
    return (
        f"The model is unsure of its answers: it expects to be wrong about known or unknown for {100 * digest.doubt:.0f} % of the "
        "images. Check some accepted and some rejected images before you use the answers."
    )


def is_split_arbitrary(digest: Digest) -> bool:
    """Whether about half of the images were rejected and the recent scores do not show that there are two kinds of images.

    >>> digest = Digest()
    >>> for number in range(100):
    ...     digest.add({"row": number, "known": number >= 50, "label": "cat", "verdict": "reliable_desired", "score": number / 100})
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
