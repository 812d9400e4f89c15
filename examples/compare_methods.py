"""Compare two methods on one stream, with a confidence interval of the difference.

python examples/compare_methods.py zero_shot rosita
"""

import sys

import ostta
from ostta.data import open_dataset
from ostta.evaluation.intervals import paired_difference
from ostta.evaluation.loop import evaluate
from ostta.streams import SingleDomain

IMAGES = 50  # known and unknown images each; the samples have 1,000
theirs, ours = sys.argv[1:3] if len(sys.argv) > 2 else ("zero_shot", "field")

# Known images under snow and unknown digits, in a random order. Labels are used for the evaluation only.
snowy, digits = open_dataset("sample:cifar10c", limit=IMAGES), open_dataset("sample:mnist", limit=IMAGES)
stream = SingleDomain(snowy, digits, seed=0)
records = {}
for name in (theirs, ours):
    # A profile chooses all components; a method alone uses the published score and identifier.
    choice = {"profile": "field"} if name == "field" else {"method": name}
    adapter = ostta.load("embedded", snowy.classes, **choice)
    records[name] = evaluate(adapter, stream)
    figures = records[name].metrics()
    print(
        f"{name:10}", "  ".join(f"{key} {figures[key]:.1f}" for key in ("auroc", "acc_desired", "acc_undesired", "hm"))
    )

# Paired bootstrap: 1,000 times, the same images are drawn with replacement for both methods.
for metric in ("auroc", "hm"):
    interval = paired_difference([records[ours].outcomes()], [records[theirs].outcomes()], metric)
    print(f"{ours} minus {theirs}, {metric}: {interval}")
