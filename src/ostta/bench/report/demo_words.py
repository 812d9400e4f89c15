"""The words of the demo's page, for somebody who sees all this for the first time."""

from __future__ import annotations

# What each run of the demo is, for somebody who sees the words for the first time.
WHAT = {
    "rosita": "ROSITA learns from the stream as it goes, without labels: images that are surely known or surely unknown train a few "
    "parameters of the model, one step at a time.",
    "field": "The profile `field` is what `ostta.load` does if nothing is named. It trains no parameters. It decides by "
    "how much better an image fits its class than chance and by the recent images that look like it, and gives a probability.",
}
NEXT = (
    ("Your own photographs, with your own classes; the page of the stream is in the folder `cats`.",
     'ostta stream photos/ --classes "cat,dog,ship" --out cats'),
    ("Another method on the same images; `ostta ls methods` has them all.",
     "ostta run --method tda --desired sample:cifar10c --undesired sample:mnist --limit 500"),
    ("Other options of a method; `ostta ls options rosita` says what there is.",
     "ostta run --method rosita --set lr=1e-4 --desired sample:cifar10c --undesired sample:mnist --limit 500"),
    ("A table of the paper, scaled to the model that ships, and its page. DATA is the folder of the data sets.",
     "ostta bench run embedded/scores --data DATA --limit 200 && ostta bench report embedded/scores --data DATA --limit 200"),
)  # fmt: skip
READING = [
    "Acc_D: desired images that were accepted and named rightly. Acc_U: undesired images that were rejected. HM: their harmonic mean, "
    "which is high only where both are.",
    "AUROC and FPR95 say how well the score alone tells known from unknown, whatever the threshold.",
    "An interval is over images: how much the difference would vary with other images of the same kind. It says nothing about other orders, "
    "other classes or other models.",
    "“I don't know” is the answer to an image whose score is below the threshold.",
    "ms/step is the time on this machine, as busy as it was; it is no measure of speed.",
]
