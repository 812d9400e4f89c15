"""The recommended rule: how probable it is that an image is known.

**The fit to the text.** Features of the remembered images are centred and scaled to unit length. With z_c the cosine of
a centred image to class c, and z' the second-largest of them,

    u = (max_c z_c - mean of z') / standard deviation of z'        mean and deviation over the known images

A known image's second-best class is a wrong class. An unknown image has wrong classes only, so its best class should
look like a known image's second-best: u has mean 0 and deviation 1. No label and no list of other words is needed for
this null distribution. (With few classes the mean of z' is corrected for the one wrong class that an unknown image has
more: `fit_to_text.few_class_correction`.) If classes are alike, the second-best class of a known image fits better than
any class fits an unknown image; so the mean m_0 and the deviation s_0 of u for unknown images are estimated too, with a
prior at 0 and 1, and may only be lower. How much lower m_0 may be follows from the known images: what an image has in
common with all classes raises its best and its second-best class together. With u' the second-best class in the same
units, and g the slope of the regression of u' on u among known images,

    g (mean of u' - mean of u) / (1 - g)  <=  m_0  <=  0        g = 0 if the slope is negative: classes are not alike

The left side is the change of u' along the regression line to the point where u' = u. Known images of class c whose
best class is right have the mean m_c > m_0 and a common deviation s. Of the known images, the share e has a wrong best
class, and fits like unknown images. It is estimated from the images that look most alike: half of the share of pairs of
nearest known images whose best classes differ.

**The centre** is the mean over the classes of (sum of P(known) x + 8 c_0) / (sum of P(known) + 8), with the sums over
the images x of that best class and the prior centre c_0 of the backbone: the mean feature of images that are not the
stream's. Thus a class that was not seen yet counts as the prior centre, and a frequent class does not move the centre.
Without a prior centre, it is the mean of the known images.

**The remembered images that look like it.** v is the share of known images among the k nearest remembered images,
weighted by similarity. Known images have known neighbours at the rate a, unknown images at the rate b; both rates are
estimated. Neighbours that tell nothing (a = b) count for nothing.

**The distance to the known images.** r is the negative distance of the image to the centre before the scaling. Part of
r only repeats u. With the slope of r on u among images of one kind, x = r - slope u is the rest, with means and
deviations x1, s1 for known and x0, s0 for unknown images, estimated with the probabilities of the images as weights.
The log-odds gain

    side(r) = log N(x; x1, s1) - log N(x; x0, s0)        held constant beyond x0 and x1; zero unless x1 > x0

**Words**, where there are any: d is the largest raw cosine to a class less the largest raw cosine to a word, and
side(d) is added in the same way. A text tower that does not know the words gives both kinds the same x, so that the
term vanishes.

**How many unknown images there seem to be.** p is the share of known images. About 40 % of the unknown images have
u < m_0, so the share of images with u < m_0, less what the known ones contribute, limits 1 - p.

**Together**, with n votes that the neighbours are worth, and the temperature T = 1.5, because the pieces of evidence
repeat each other:

    T log-odds = log p/(1-p)                                       the share of known images
               + log [(1-e) N(u; m_c, s) / N(u; m_0, s_0) + e]     the text; constant below m_0 and above m_c
               + n [v log a/b + (1-v) log (1-a)/(1-b)]             the neighbours
               + side(r) + side(d)                                 the distance, and the words

An image is known if its log-odds are positive; their logistic function is `Prediction.probability`.

**Estimation.** Every few images, the model is fitted anew by expectation-maximisation: the parameters are estimated
from the probabilities of the images, and the probabilities from the parameters, in turn. There are two starts: the text
alone, and the images divided in two by their fit. The solution with the larger variational likelihood is used.

If the text tells the two kinds apart badly (their mean fits are less than 2.8 deviations apart) and the known images
are spread over the classes (their effective number is at least 0.7 of all classes), there is one more start, the
division in two by appearance, and one more term in the comparison: the evidence that known and unknown images of the
same best class look different. With N images, C classes, D effective dimensions and the share R² of the variation
within classes that the solution explains,

    appearance = D/2 (-N log(1 - R²) - C log N)        if positive, else 0

The second part is the cost of one more mean for each class, by the Bayesian information criterion. Words enter after
that, in one more iteration. Nothing is carried over from one fit to the next but the images.

**The memory** holds 512 images. If there are more, an image of the largest group leaves; a group has one best class,
and its images are all known or all unknown. So a long run of one class, as in a folder in name order, displaces no
other class. A whole set of images is fitted at once (`FieldScore.fit_set`).

model.py          the fitted model
solve.py          expectation-maximisation from several starts at once
fit_to_text.py    u, its null distribution and the centre
appearance.py     the division in two by appearance and its evidence
side_evidence.py  the evidence of r and d
memory.py         which images are remembered
score.py          the score `field`: log-odds, evidence and explanation
words/            words: where they come from, and the list that ships
identifier.py     the identifier `field`: decision and probability
options.py        the constants
"""

from __future__ import annotations

from .identifier import FieldIdentifier, FieldIdentifierOptions
from .options import FieldOptions
from .score import FieldScore

__all__ = ["FieldIdentifier", "FieldIdentifierOptions", "FieldOptions", "FieldScore"]
