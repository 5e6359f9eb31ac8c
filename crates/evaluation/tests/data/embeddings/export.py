"""Golden file for the figures of embeddings: what scipy, scikit-learn, pytrec_eval and sentence-transformers say.

    python crates/evaluation/tests/data/embeddings/export.py

Needs scikit-learn, scipy, pytrec_eval (or pytrec_eval-terrier) and sentence-transformers. Writes golden.json beside this
file. Vectors are 32-bit numbers of few digits; all is computed from them in 64 bits.
"""

import importlib.metadata
import json
import pathlib
import random
import warnings

import numpy
import pytrec_eval
from scipy import stats
from scipy.special import log_softmax
from sentence_transformers.evaluation import BinaryClassificationEvaluator
from sklearn import metrics
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise

warnings.simplefilter("ignore")
draw = random.Random(20_261_126)
numbers = numpy.random.default_rng(20_261_126)


def plain(value):
    """The value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, numpy.ndarray)):
        return [plain(part) for part in value]
    if isinstance(value, (float, numpy.floating)):
        return float(value)
    return int(value) if isinstance(value, (numpy.integer, numpy.bool_)) else value


def vectors(count, width, centres=None, spread=1.0):
    """Vectors of few digits, around `centres`, and the number of each one's centre."""
    labels = numpy.array([i % len(centres) for i in range(count)]) if centres is not None else numpy.zeros(count, int)
    around = centres[labels] if centres is not None else 0.0
    made = numpy.round(around + spread * numbers.normal(size=(count, width)), 2)
    return made.astype(numpy.float32).astype(numpy.float64), labels


# Similarities and pairs --------------------------------------------------------------------------------


SIMILARITIES = {
    "cosine": lambda a, b: 1 - pairwise.paired_cosine_distances(a, b),
    "dot": lambda a, b: numpy.sum(a * b, axis=-1),
    "euclidean": lambda a, b: -pairwise.paired_euclidean_distances(a, b),
    "manhattan": lambda a, b: -pairwise.paired_manhattan_distances(a, b),
}


def similar(width, count, likeness):
    a, _ = vectors(count, width)
    b, _ = vectors(count, width)
    share = numpy.array([[draw.random() * likeness] for _ in range(count)])
    b = numpy.round(share * a + (1 - share) * b, 2).astype(numpy.float32).astype(numpy.float64)
    gold = numpy.round(5 * share[:, 0] + numbers.normal(size=count), 1)
    scores = {name: similarity(a, b) for name, similarity in SIMILARITIES.items()}
    figures = {}
    for name, values in scores.items():
        figures[f"spearman_{name}"] = stats.spearmanr(values, gold).statistic
        figures[f"pearson_{name}"] = stats.pearsonr(values, gold).statistic
    return {"width": width, "first": a.ravel(), "second": b.ravel(), "gold": gold, "scores": scores, "figures": figures}


def pairs(scores, labels):
    """The static methods of the evaluator see the highest scores first."""
    scores, labels = numpy.array(scores, float), numpy.array(labels)
    accuracy, accuracy_threshold = BinaryClassificationEvaluator.find_best_acc_and_threshold(scores, labels, True)
    f1, precision, recall, threshold = BinaryClassificationEvaluator.find_best_f1_and_threshold(scores, labels, True)
    return {
        "scores": scores, "labels": labels, "accuracy": accuracy, "accuracy_threshold": accuracy_threshold, "f1": f1,
        "f1_threshold": threshold, "precision": precision, "recall": recall,
        "ap": metrics.average_precision_score(labels, scores),
        "mcc": metrics.matthews_corrcoef(labels, scores >= threshold),
    }


def noisy_pairs(count, digits):
    labels = [draw.randrange(2) for _ in range(count)]
    return pairs([round(label + draw.gauss(0, 0.8), digits) for label in labels], labels)


pair_cases = [
    noisy_pairs(80, 6),
    noisy_pairs(80, 1),  # many ties
    noisy_pairs(31, 0),
    pairs([-x for x in range(10)], [1, 1, 1, 0, 1, 0, 0, 0, 0, 0]),  # distances
    pairs([0.5] * 6, [1, 0, 1, 1, 0, 0]),
    pairs([0.9, 0.1], [1, 0]),
    pairs([0.9, 0.1], [0, 1]),
    pairs([0.3], [1]),
    pairs([0.3, 0.7, 0.1], [1, 1, 1]),
    pairs([0.3, 0.7, 0.1], [0, 0, 0]),
]

# Retrieval ---------------------------------------------------------------------------------------------

KS = [1, 3, 5, 10, 100]


def retrieval(qrels, run):
    names = ["ndcg_cut", "map_cut", "recall", "P"]
    measures = {f"{name}." + ",".join(map(str, KS)) for name in names} | {"recip_rank"}
    scores = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    means = {}
    for k in KS:
        for ours, theirs in [("ndcg", "ndcg_cut"), ("map", "map_cut"), ("recall", "recall"), ("precision", "P")]:
            means[f"{ours}@{k}"] = sum(score[f"{theirs}_{k}"] for score in scores.values()) / len(scores)
        # A first relevant document below rank k counts nothing.
        ranks = [score["recip_rank"] for score in scores.values()]
        means[f"mrr@{k}"] = sum(rank for rank in ranks if rank > 0.999 / k) / len(scores)
    return {"qrels": qrels, "run": run, "queries": len(scores), "figures": means}


def random_run(n_queries, n_documents, grades, digits, share):
    documents = [f"d{i}" for i in range(n_documents)] + ["D", "é", "document", "10", "9"]
    qrels, run = {}, {}
    for query in (f"q{i}" for i in range(n_queries)):
        qrels[query] = {name: draw.choice(grades) for name in draw.sample(documents, draw.randint(1, 12))}
        found = draw.sample(documents, max(1, int(share * len(documents))))
        run[query] = {name: round(draw.random() + 0.2 * qrels[query].get(name, 0), digits) for name in found}
    return retrieval(qrels, run)


retrieval_cases = [
    random_run(20, 60, [0, 1], 6, 1.0),
    random_run(20, 60, [0, 1, 2, 3], 1, 1.0),  # many ties
    random_run(20, 200, [0, 1, 2], 9, 0.9),
    random_run(10, 30, [-1, 0, 1, 2], 6, 0.3),  # negative grades, few found
    retrieval({"q": {"a": 0, "b": 0}}, {"q": {"a": 1.0, "b": 0.5}}),  # nothing relevant
    retrieval({"q": {"a": 1, "b": 2}}, {"q": {"c": 1.0}}),  # nothing relevant found
    # Scores that are equal in 32 bits are ties.
    retrieval({"q": {"a": 1}}, {"q": {"a": 0.1 + 1e-12, "b": 0.1, "c": 0.1 - 1e-12}}),
]

# Clusters ----------------------------------------------------------------------------------------------


def agreement(classes, clusters):
    found = metrics.homogeneity_completeness_v_measure(classes, clusters)
    return {"classes": classes, "clusters": clusters, "homogeneity": found[0], "completeness": found[1], "v_measure": found[2]}


def noisy_clusters(count, n_classes, n_clusters, right):
    classes = [draw.randrange(n_classes) for _ in range(count)]
    return agreement(classes, [c % n_clusters if draw.random() < right else draw.randrange(n_clusters) for c in classes])


agreement_cases = [
    noisy_clusters(100, 5, 5, 0.7),
    noisy_clusters(100, 5, 8, 0.0),
    noisy_clusters(60, 7, 3, 0.9),
    agreement([0, 0, 1, 1], [1, 1, 0, 0]),
    agreement([0, 0, 1, 1], [0, 1, 0, 1]),
    agreement([0, 0, 1, 1], [0, 0, 0, 0]),
    agreement([0, 0, 0], [0, 1, 2]),
    agreement([2, 2, 2], [5, 5, 5]),
    agreement([], []),
]


def clusters(count, width, k, spread):
    centres = numbers.normal(size=(k, width))
    points, _ = vectors(count, width, centres, spread)
    first = points[draw.sample(range(count), k)]
    found = KMeans(k, init=first, n_init=1, max_iter=300, tol=0, algorithm="lloyd").fit(points)
    return {"width": width, "points": points.ravel(), "first": first.ravel(), "labels": found.labels_,
            "centres": found.cluster_centers_.ravel(), "inertia": found.inertia_}


cluster_cases = [clusters(60, 3, 4, 0.3), clusters(120, 11, 6, 1.0), clusters(40, 2, 8, 0.5)]

# Linear probes -----------------------------------------------------------------------------------------


def probe(width, n_classes, count, spread, c):
    centres = numbers.normal(size=(n_classes, width))
    train, train_labels = vectors(count, width, centres, spread)
    test, test_labels = vectors(count, width, centres, spread)
    found = LogisticRegression(C=c, max_iter=100_000, tol=1e-12).fit(train, train_labels)
    predicted = found.predict(test)
    usual = LogisticRegression(C=c, max_iter=1000).fit(train, train_labels).predict(test)
    scores = train @ found.coef_.T + found.intercept_
    if n_classes == 2:
        scores = numpy.hstack([numpy.zeros_like(scores), scores])
    losses = -log_softmax(scores, axis=1)[numpy.arange(count), train_labels]
    return {
        "width": width, "n_classes": n_classes, "c": c, "train": train.ravel(), "train_labels": train_labels,
        "test": test.ravel(), "test_labels": test_labels, "predicted": predicted, "usual": usual,
        "coefficients": found.coef_, "probabilities": found.predict_proba(test)[:5],
        "objective": losses.mean() + (found.coef_**2).sum() / (2 * c * count),
        "accuracy": metrics.accuracy_score(test_labels, predicted),
        "f1_macro": metrics.f1_score(test_labels, predicted, average="macro"),
    }


probe_cases = [probe(8, 2, 60, 1.0, 1.0), probe(6, 4, 80, 0.8, 1.0), probe(5, 3, 60, 1.2, 0.01), probe(4, 2, 40, 0.2, 100.0)]

golden = {
    "made_with": {name: importlib.metadata.version(name) for name in
                  ("scikit-learn", "scipy", "pytrec_eval-terrier", "sentence-transformers", "numpy")},
    "similar": [similar(7, 40, 1.0), similar(16, 30, 0.4)], "pairs": pair_cases, "retrieval": retrieval_cases,
    "agreement": agreement_cases, "clusters": cluster_cases, "probes": probe_cases,
}
path = pathlib.Path(__file__).with_name("golden.json")
lines = ",\n".join(f"{json.dumps(key)}: " + (
    "[\n" + ",\n".join(json.dumps(plain(part)) for part in value) + "\n]" if isinstance(value, list)
    else json.dumps(plain(value))) for key, value in golden.items())
path.write_text("{\n" + lines + "\n}\n")
