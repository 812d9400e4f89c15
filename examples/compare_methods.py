"""Two methods on one stream: five figures each, and an interval that says whether the difference could be chance.

python examples/compare_methods.py zero_shot rosita
"""

import sys

import ostta
from ostta.data import open_dataset
from ostta.evaluation.intervals import paired_difference
from ostta.evaluation.loop import evaluate
from ostta.streams import SingleDomain

IMAGES = 50  # of each side; the samples have 1,000
theirs, ours = sys.argv[1:3] if len(sys.argv) > 2 else ("zero_shot", "field")

# Known images under snow, unknown digits, in one random order that the seed decides. Labels are for the evaluation alone.
snowy, digits = open_dataset("sample:cifar10c", limit=IMAGES), open_dataset("sample:mnist", limit=IMAGES)
stream = SingleDomain(snowy, digits, seed=0)
records = {}
for name in (theirs, ours):
    # A profile is a choice of all parts; a method alone has the published score and identifier.
    choice = {"profile": "field"} if name == "field" else {"method": name}
    adapter = ostta.load("embedded", snowy.classes, **choice)
    records[name] = evaluate(adapter, stream)
    figures = records[name].metrics()
    print(
        f"{name:10}", "  ".join(f"{key} {figures[key]:.1f}" for key in ("auroc", "acc_desired", "acc_undesired", "hm"))
    )

# Images are drawn again with replacement, the same for both sides, 1,000 times.
for metric in ("auroc", "hm"):
    interval = paired_difference([records[ours].outcomes()], [records[theirs].outcomes()], metric)
    print(f"{ours} minus {theirs}, {metric}: {interval}")
