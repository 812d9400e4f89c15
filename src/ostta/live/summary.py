"""What a stream was, in a few lines for a person."""

from __future__ import annotations

from ..core.words import counted
from .digest import Digest

# Classes that are named one by one.
MOST_CLASSES = 12


def summary(digest: Digest, seconds: float, *, skipped: int = 0, dropped: int = 0) -> list[str]:
    """The lines that end `ostta stream`.

    >>> digest = Digest()
    >>> digest.add({"row": 1, "image": "a.jpg", "label": "cat", "known": True, "verdict": "reliable_desired", "score": 0.4})
    >>> summary(digest, 0.5, skipped=3)
    ['1 image in 0.5 s (2.0 a second): 1 accepted (100.0 %), 0 "I don\\'t know".', 'cat 1', '3 images were judged before and left out.']
    """
    if not digest.images and skipped:
        return [f"Nothing new: {_were(skipped)} judged before and left out."]
    share = "" if digest.accepted_share is None else f" ({100 * digest.accepted_share:.1f} %)"
    rate = f" ({digest.images / seconds:.1f} a second)" if seconds > 0 else ""
    lines = [
        f"{counted(digest.images, 'image')} in {seconds:.1f} s{rate}: {digest.accepted} accepted{share}, "
        f'{digest.rejected} "I don\'t know".'
    ]
    if digest.classes:
        named = [f"{' '.join(name.split())} {count}" for name, count in digest.classes.most_common(MOST_CLASSES)]
        left = len(digest.classes) - len(named)
        lines.append(", ".join(named) + (f", and {counted(left, 'more class', 'more classes')}" if left else ""))
    troubles = [
        f"{_were(skipped)} judged before and left out" if skipped else "",
        f"{counted(digest.unreadable, 'image')} could not be read" if digest.unreadable else "",
        f"nothing could be seen in {counted(digest.unseen, 'image')}" if digest.unseen else "",
        f"{counted(dropped, 'frame')} dropped, as the source was faster than the model" if dropped else "",
        f"the threshold was still warming up at {counted(digest.warming_up, 'image')}" if digest.warming_up else "",
    ]
    told = "; ".join(filter(None, troubles))
    if told:
        lines.append(f"{told[0].upper()}{told[1:]}.")
    if digest.kinds:
        kinds = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in digest.kinds.most_common())
        lines.append(f"Events: {kinds}.")
    return lines


def _were(number: int) -> str:
    return f"{counted(number, 'image')} {'was' if number == 1 else 'were'}"
