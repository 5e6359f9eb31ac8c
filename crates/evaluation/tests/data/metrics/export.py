"""Golden file for cloze-evaluation's metrics: what scikit-learn, scipy, seqeval and SQuAD's scripts say.

    python crates/evaluation/tests/data/metrics/export.py

Needs scikit-learn, scipy, seqeval and transformers (whose `squad_metrics` is the official script for
SQuAD 2.0; the one for 1.1 is short and copied below). Writes golden.json beside this file. NaN is null.
"""

import collections
import importlib.metadata
import json
import math
import pathlib
import random
import re
import sys
import unicodedata
import warnings

import numpy
from scipy import stats
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as seqeval_default
from seqeval.metrics.v1 import precision_recall_fscore_support as seqeval_strict
from seqeval.scheme import IOB1, IOB2, IOBES, Entities
from sklearn import metrics
from transformers.data.metrics import squad_metrics

warnings.simplefilter("ignore")
draw = random.Random(20_261_121)


def plain(value):
    """The value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, numpy.ndarray)):
        return [plain(part) for part in value]
    if isinstance(value, (float, numpy.floating)):
        return None if math.isnan(value) else float(value)
    return int(value) if isinstance(value, numpy.integer) else value


# Classes ---------------------------------------------------------------------------------------------

ZERO = {"zero": 0, "one": 1, "nan": math.nan}


def classes(n, gold, predicted):
    scores = {}
    for name, zero in ZERO.items():
        score = lambda **more: metrics.precision_recall_fscore_support(
            gold, predicted, zero_division=zero, **more)
        scores[name] = {average: score(average=average)[:3] for average in ("micro", "macro", "weighted")}
        scores[name]["each"] = list(zip(*score(labels=range(n), average=None)))
        # Without the first class, as for a negative one that is not asked for.
        for average in ("micro", "macro", "weighted"):
            scores[name][f"{average}_rest"] = score(labels=range(1, n), average=average)[:3]
    return {
        "n_classes": n, "gold": gold, "predicted": predicted,
        "matrix": metrics.confusion_matrix(gold, predicted, labels=range(n)),
        "accuracy": metrics.accuracy_score(gold, predicted),
        "matthews": metrics.matthews_corrcoef(gold, predicted), "scores": scores,
    }


def noisy(n, count, right):
    gold = [draw.randrange(n) for _ in range(count)]
    return gold, [g if draw.random() < right else draw.randrange(n) for g in gold]


class_cases = [
    classes(2, *noisy(2, 40, 0.7)),
    classes(3, *noisy(3, 60, 0.5)),
    classes(7, *noisy(4, 50, 0.5)),  # three classes never occur
    classes(50, *noisy(50, 300, 0.6)),
    classes(2, [1] * 6, [1] * 6),  # one class only, always right
    classes(2, [0] * 6, [0] * 6),
    classes(2, [0] * 6, [1] * 6),  # always wrong
    classes(2, [0, 1, 1, 0, 1], [0] * 5),  # constant predictions
    classes(3, [0, 0, 0, 0], [0, 1, 2, 1]),  # constant gold
    classes(2, [1], [0]),
]

# Correlations ----------------------------------------------------------------------------------------


def numbers(x, y):
    return {"x": x, "y": y, "pearson": stats.pearsonr(x, y).statistic, "spearman": stats.spearmanr(x, y).statistic}


base = [draw.gauss(0, 1) for _ in range(50)]
number_cases = [
    numbers(base, [x + draw.gauss(0, 0.5) for x in base]),
    numbers([round(2 * x) / 2 for x in base], [round(x + draw.gauss(0, 1)) for x in base]),  # many ties
    numbers(base, [-3 * x + 1 for x in base]),
    numbers([0.1] * 7, base[:7]),  # constant, and 0.7 / 7 is not 0.1
    numbers([1.0, 2.0], [5.0, -1.0]),
    numbers([1.0, math.nan, 2.0, 3.0], [0.0, 1.0, 2.0, 4.0]),
    numbers([1e8 + x for x in base], base),
    numbers([1e-200 * x for x in base], [1e200 * x for x in base]),
]

# Entities --------------------------------------------------------------------------------------------

TYPES = ["PER", "LOC", "group-x"]
PREFIXES = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES"}
SCHEMES = {"IOB1": IOB1, "IOB2": IOB2, "IOBES": IOBES}


def random_tags(prefixes, length):
    """Any tags: mostly invalid sequences."""
    return [draw.choice(["O", "O"] + [f"{p}-{t}" for p in prefixes for t in TYPES]) for _ in range(length)]


def valid_tags(scheme, length):
    tags, before = [], None
    while len(tags) < length:
        if draw.random() < 0.5:
            tags.append("O")
            before = None
            continue
        size, kind = min(draw.randint(1, 3), length - len(tags)), draw.choice(TYPES)
        entity = [f"I-{kind}"] * size
        if scheme == "IOB2" or (scheme == "IOB1" and before == kind):
            entity[0] = f"B-{kind}"
        if scheme == "IOBES":
            entity = [f"S-{kind}"] if size == 1 else [f"B-{kind}"] + entity[2:] + [f"E-{kind}"]
        tags += entity
        before = kind
    return tags


def corrupted(sequences, prefixes, share):
    return [[draw.choice(random_tags(prefixes, 1)) if draw.random() < share else tag for tag in tags]
            for tags in sequences]


def entity_scores(score, gold, predicted, **more):
    types = sorted({name for name in set(more.pop("types"))})
    result = {average: score(gold, predicted, average=average, **more)[:3] for average in ("micro", "weighted")}
    if types:
        result["macro"] = score(gold, predicted, average="macro", **more)[:3]
        result["each"] = [[name, *row] for name, row in
                          zip(types, zip(*score(gold, predicted, average=None, **more)), strict=True)]
    return result


def entities(scheme, gold, predicted):
    lenient = {"gold": [[[t, s, e + 1] for t, s, e in get_entities(tags)] for tags in gold],
               "predicted": [[[t, s, e + 1] for t, s, e in get_entities(tags)] for tags in predicted]}
    kind = SCHEMES[scheme]
    strict = {name: [[[e.tag, e.start, e.end] for e in found] for found in Entities(tags, kind).entities]
              for name, tags in (("gold", gold), ("predicted", predicted))}
    types = lambda spans: [t for side in ("gold", "predicted") for found in spans[side] for t, _, _ in found]
    for zero in (0, 1):
        lenient[f"scores_{zero}"] = entity_scores(
            seqeval_default, gold, predicted, zero_division=zero, types=types(lenient))
        strict[f"scores_{zero}"] = entity_scores(
            seqeval_strict, gold, predicted, zero_division=zero, scheme=kind, types=types(strict))
    return {"scheme": scheme, "gold_tags": gold, "predicted_tags": predicted, "default": lenient, "strict": strict}


entity_cases = []
for scheme, prefixes in PREFIXES.items():
    right = [valid_tags(scheme, draw.randint(1, 14)) for _ in range(40)]
    entity_cases.append(entities(scheme, right, corrupted(right, prefixes, 0.15)))
    wild = [random_tags(prefixes, draw.randint(1, 12)) for _ in range(60)]
    entity_cases.append(entities(scheme, wild, corrupted(wild, prefixes, 0.3)))
    outside = [["O"] * 3, ["O"]]
    entity_cases.append(entities(scheme, outside, outside))
    entity_cases.append(entities(scheme, outside, [valid_tags(scheme, 3), ["O"]]))
    entity_cases.append(entities(scheme, [valid_tags(scheme, 9)], [["O"] * 9]))

# SQuAD -----------------------------------------------------------------------------------------------


def f1_of_1_1(prediction, gold):
    """`f1_score` of the official evaluate-v1.1.py."""
    prediction_tokens = squad_metrics.normalize_answer(prediction).split()
    ground_truth_tokens = squad_metrics.normalize_answer(gold).split()
    common = collections.Counter(prediction_tokens) & collections.Counter(ground_truth_tokens)
    num_same = sum(common.values())
    if num_same == 0:
        return 0
    precision = 1.0 * num_same / len(prediction_tokens)
    recall = 1.0 * num_same / len(ground_truth_tokens)
    return (2 * precision * recall) / (precision + recall)


def exact_of_1_1(prediction, gold):
    return squad_metrics.normalize_answer(prediction) == squad_metrics.normalize_answer(gold)


texts = [
    "", " ", "the", "The Eiffel Tower", "eiffel  tower.", "an apple, a pear, and the end", "A.N. Other",
    "can't stop; won't stop", "U.S.A.", "in the 1990s", "10,000", "£10 – a bargain", "“the” ‘quoted’ text",
    "naïve café", "nai\u0308ve", "ΟΔΟΣ ΤΟΥ", "İstanbul", "ẞtraße", "the\u00a0Beatles", "the\u200bBeatles", "the\u3000end",
    "the\u0301 accent", "a_b the_c", "an-other", "北京 the 大学", "a\u093e b", "¿the?", "a\u001cb", "Ⓐ the Ⓐ", "aⒶ",
    "theatre a n", "ｔｈｅ full width", "\tthe\nend\r\n", "a²", "x the² y", "to be or not to be", "be to not or",
]
pairs = [(gold, predicted) for gold in texts for predicted in texts]
normal = [{"text": text, "normal": squad_metrics.normalize_answer(text)} for text in texts]
answer_pairs = [
    {"gold": gold, "predicted": predicted, "exact": int(exact_of_1_1(predicted, gold)),
     "f1": f1_of_1_1(predicted, gold), "f1_2": squad_metrics.compute_f1(gold, predicted)}
    for gold, predicted in pairs
    if f1_of_1_1(predicted, gold) or squad_metrics.compute_f1(gold, predicted) or draw.random() < 0.03
]

Question = collections.namedtuple("Question", "qas_id answers")


def squad(questions, threshold):
    """`questions`: golds, prediction, null score."""
    examples = [Question(i, [{"text": text} for text in golds]) for i, (golds, _, _) in enumerate(questions)]
    predictions = {i: predicted for i, (_, predicted, _) in enumerate(questions)}
    null = {i: score for i, (_, _, score) in enumerate(questions)}
    result = {"questions": questions, "threshold": threshold,
              "v2": squad_metrics.squad_evaluate(examples, predictions, null, threshold)}
    if all(golds for golds, _, _ in questions):
        best = lambda metric: 100.0 * sum(
            max(metric(predicted, gold) for gold in golds) for golds, predicted, _ in questions) / len(questions)
        result["v1"] = {"exact": best(exact_of_1_1), "f1": best(f1_of_1_1)}
    return result


def question(answerable):
    golds = draw.sample(texts[3:], draw.randint(1, 3)) if draw.random() < answerable else []
    predicted = draw.choice(golds) if golds and draw.random() < 0.5 else draw.choice(texts)
    return [golds, predicted, round(draw.gauss(-1 if golds else 1, 2), 2)]


squad_cases = [
    squad([question(1.0) for _ in range(60)], 1e9),
    squad([question(0.5) for _ in range(80)], 0.0),
    squad([question(0.5) for _ in range(80)], 1.5),
    squad([question(0.0) for _ in range(20)], 0.0),
    squad([[g, p, round(s)] for g, p, s in (question(0.6) for _ in range(60))], 0.0),  # ties
    squad([[["the"], "the", 0.0], [["a", "b"], "", 1.0], [["an"], "an", -1.0]], 0.5),
]


def ranges(holds):
    """The code points for which it holds, as pairs of the first and the last."""
    found = []
    for code in range(sys.maxunicode + 1):
        if holds(chr(code)):
            if found and found[-1][1] == code - 1:
                found[-1][1] = code
            else:
                found.append([code, code])
    return found


characters = {
    "word": ranges(lambda c: re.match(r"\w", c)),
    "space": ranges(str.isspace),
    "unassigned": ranges(lambda c: unicodedata.category(c) in ("Cn", "Cs")),
}

golden = {
    "made_with": {name: importlib.metadata.version(name)
                  for name in ("scikit-learn", "scipy", "seqeval", "transformers", "numpy")},
    "classes": class_cases, "numbers": number_cases, "entities": entity_cases,
    "normal": normal, "answers": answer_pairs, "squad": squad_cases, "characters": characters,
}
path = pathlib.Path(__file__).with_name("golden.json")
lines = ",\n".join(f"{json.dumps(key)}: " + (
    "[\n" + ",\n".join(json.dumps(plain(part)) for part in value) + "\n]" if isinstance(value, list)
    else json.dumps(plain(value))) for key, value in golden.items())
path.write_text("{\n" + lines + "\n}\n")
