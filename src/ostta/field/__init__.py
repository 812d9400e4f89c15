"""The recommended rule: how probable it is that an image is known.

**The fit to the text.** Features of the recent images are centred by the mean of the known ones and scaled to unit length. With
z_c the cosine of a centred image to class c, and z' the second-largest of them,

    u = (max_c z_c - mean of z') / standard deviation of z'          mean and deviation over the known recent images

A known image's second-best class is a wrong class. An unknown image has wrong classes only, so its best class should look like a
known image's second-best: u has mean 0 and deviation 1. No label and no list of other words is needed for this null distribution.
(With few classes the mean of z' is corrected for the one wrong class that an unknown image has more: `model.more_classes`.)
Known images of class c have the mean m_c > 0 and a common deviation s, which are estimated.

**The recent images that look like it.** v is the share of known images among the k nearest recent images, weighted by similarity.
Known images have known neighbours at the rate a, unknown images at the rate b; both rates are estimated. Neighbours that tell
nothing (a = b) count for nothing.

**How many unknown images there seem to be.** p is the share of known images. Half of the unknown images have u < 0, so the share
of images with u < 0, less what the known ones contribute, limits 1 - p.

**Together**, with n votes that the neighbours are worth:

    log-odds = log p/(1-p)  +  log N(u; m_c, s) - log N(u; 0, 1)  +  n [v log a/b + (1-v) log (1-a)/(1-b)]

The text's term is held constant below 0 and above m_c. An image is known if its log-odds are positive; their logistic function is
`Prediction.probability`.

**Estimation.** The window of recent images is fitted anew every few images by expectation-maximisation over the probabilities of
its images. It starts from the text alone and, a second time, from the window divided in two by appearance; the solution with the
larger variational likelihood is used. Nothing is carried over from one fit to the next but the images.

model.py       the fit
score.py       the score `field`: log-odds, evidence and explanation
identifier.py  the identifier `field`: decision and probability
options.py     the constants
"""

from __future__ import annotations

from .identifier import FieldIdentifier, FieldIdentifierOptions
from .options import FieldOptions
from .score import FieldScore

__all__ = ["FieldIdentifier", "FieldIdentifierOptions", "FieldOptions", "FieldScore"]
