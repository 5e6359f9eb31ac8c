"""Golden file for the figures of multi-label classification: what scikit-learn says.

    python crates/evaluation/tests/data/labels/export.py

Writes golden.json beside this file.
"""

import json
import pathlib
import random
import warnings

import numpy
import sklearn
from sklearn import metrics

warnings.simplefilter("ignore")
draw = random.Random(20_261_127)


def case(n_labels, n_examples, threshold, digits):
    gold = numpy.array([[int(draw.random() < 0.3) for _ in range(n_labels)] for _ in range(n_examples)])
    # The last label never occurs.
    gold[:, -1] = 0
    # Rounded, so that there are ties.
    noisy = [[round(min(max(0.45 * g + 0.6 * draw.random(), 0), 1), digits) for g in row] for row in gold]
    scores = numpy.array(noisy)
    predicted = scores > threshold
    f1 = {f"f1_{how}": metrics.f1_score(gold, predicted, average=how, zero_division=0)
          for how in ("micro", "macro", "samples")}
    return {
        "threshold": threshold,
        "gold": [[int(label) for label in row.nonzero()[0]] for row in gold],
        "scores": noisy,
        "figures": f1 | {
            "precision_micro": metrics.precision_score(gold, predicted, average="micro", zero_division=0),
            "recall_micro": metrics.recall_score(gold, predicted, average="micro", zero_division=0),
            "average_precision": metrics.average_precision_score(gold, scores, average="macro"),
            "average_precision_micro": metrics.average_precision_score(gold, scores, average="micro"),
            "accuracy": metrics.accuracy_score(gold, predicted),
        },
    }


golden = {
    "made_by": f"scikit-learn {sklearn.__version__}",
    "cases": [case(2, 5, 0.5, 1), case(4, 30, 0.5, 2), case(7, 40, 0.3, 1), case(3, 12, 0.9, 3)],
}
path = pathlib.Path(__file__).with_name("golden.json")
path.write_text(json.dumps(golden) + "\n")
