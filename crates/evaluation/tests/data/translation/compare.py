"""Compares `cloze score` with sacreBLEU on real text and on thousands of drawn lines. By hand:

    python crates/evaluation/tests/data/translation/compare.py PROGRAM [MULTI30K]

PROGRAM is the program `cloze`, MULTI30K a folder with test_2016_flickr.en, .de, .fr or the like (left out: drawn lines
alone). Every line is scored by itself, and each file as a whole, with many settings; then samples are drawn. Needs
sacrebleu 2.6.0 on NumPy 2 and Python 3.11. Prints how many scores were compared, and those that differ by more than
the last of 12 decimals.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

draw = random.Random(7)
sacrebleu.metrics.bleu.sacrelogger.setLevel("ERROR")
program = sys.argv[1]

SETTINGS = [
    (BLEU, {}, "bleu"),
    (BLEU, {"lowercase": True}, "bleu --lowercase"),
    *((BLEU, {"tokenize": name}, f"bleu --tokenize {name}") for name in ["intl", "zh", "char", "none"]),
    *((BLEU, {"smooth_method": name}, f"bleu --smooth {name}") for name in ["floor", "add-k", "none"]),
    (BLEU, {"smooth_method": "add-k", "smooth_value": 0.3}, "bleu --smooth add-k --smooth-value 0.3"),
    (CHRF, {}, "chrf"),
    (CHRF, {"word_order": 2, "lowercase": True}, "chrf --word-order 2 --lowercase"),
    (CHRF, {"whitespace": True, "char_order": 4, "beta": 3}, "chrf --whitespace --char-order 4 --beta 3"),
    (CHRF, {"eps_smoothing": True, "word_order": 1}, "chrf --epsilon-smoothing --word-order 1"),
    (TER, {}, "ter"),
    (TER, {"normalized": True}, "ter --normalized"),
    (TER, {"normalized": True, "asian_support": True, "no_punct": True},
     "ter --normalized --asian-support --no-punctuation"),
    (TER, {"case_sensitive": True, "no_punct": True}, "ter --case-sensitive --no-punctuation"),
]

# Of Unicode 14, which Python 3.11 knows.
RANGES = [(0x20, 0x7e), (0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x6ff),
          (0x900, 0x97f), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x20a0, 0x20bf), (0x2100, 0x22ff), (0x2e80, 0x2eff),
          (0x3000, 0x30ff), (0x31c0, 0x31ff), (0x3200, 0x33ff), (0x3400, 0x3420), (0x4e00, 0x4e40), (0xac00, 0xac40),
          (0xf900, 0xf920), (0xfe10, 0xfe4f), (0xff00, 0xffef), (0x1f300, 0x1f64f), (0x20000, 0x20020), (0x1c, 0x1f),
          (0x85, 0x85), (0x1680, 0x1680)]
PIECES = ["&quot;", "&amp;", "&lt;", "&gt;", "<skipped>", "'s", "...", "3.5", "1,000", "-", "5-6", ", ", ". ", "ΣΑΣ ", "İ"]


def odd_line():
    chosen = [draw.choice(RANGES) for _ in range(draw.randint(1, 4))]
    parts = []
    for _ in range(draw.choice([0, 1, 2, 5, 12, 40])):
        low, high = draw.choice(chosen)
        parts.append(draw.choice(PIECES) if draw.random() < 0.1 else chr(draw.randint(low, high)))
        if draw.random() < 0.2:
            parts.append(" ")
    # What ends a line, or is not a character.
    return "".join(c for c in "".join(parts) if c not in "\n\r\ufeff")


def perturbed(line, rate):
    words, result = line.split(" "), []
    for word in words:
        chance = draw.random()
        if chance < rate / 3:
            continue
        if chance < 2 * rate / 3:
            result.append(draw.choice(words))
        result.append(word if chance > rate / 2 else word[::-1])
    if len(result) > 2 and draw.random() < 2 * rate:
        at, to, n = draw.randrange(len(result)), draw.randrange(len(result)), draw.randint(1, 5)
        moved = result[at:at + n]
        del result[at:at + n]
        result[to:to] = moved
    return " ".join(result)


def corpora():
    odd = [odd_line() for _ in range(3_000)]
    yield "odd", [perturbed(line, 0.3) for line in odd], [odd]
    yield "odd, two references", [perturbed(line, 0.3) for line in odd], [[perturbed(line, 0.2) for line in odd], odd]
    words = [f"w{n}" for n in range(9)]
    drawn = lambda: " ".join(draw.choice(words) for _ in range(draw.choice([1, 3, 8, 20, 45, 90])))
    few = [drawn() for _ in range(1_000)]
    yield "few words", [perturbed(line, 0.4) for line in few], [few]
    yield "unrelated", [drawn() for _ in range(1_000)], [few]
    if len(sys.argv) > 2:
        files = sorted(pathlib.Path(sys.argv[2]).glob("*test*"))
        texts = {path.suffix[1:]: path.read_text(encoding="utf-8").split("\n")[:-1] for path in files}
        for name, lines in texts.items():
            yield f"multi30k {name}, perturbed", [perturbed(line, 0.25) for line in lines], [lines]
        names = list(texts)
        for name, other in zip(names, names[1:] + names[:1]):
            yield f"multi30k {other} beside {name}", texts[other], [texts[name]]
        yield "multi30k, all as references", [perturbed(line, 0.1) for line in texts[names[0]]], list(texts.values())


def run(folder, args, hypotheses):
    result = subprocess.run([program, "score", *args.split()], cwd=folder, capture_output=True,
                            input="".join(line + "\n" for line in hypotheses).encode())
    if result.returncode:
        sys.exit(f"{args}: {result.stderr.decode()}")
    return result.stdout.decode()


def main():
    compared = differ = 0

    def same(ours, theirs, what):
        nonlocal compared, differ
        compared += 1
        if abs(ours - theirs) > 1.1e-12 * max(1, abs(theirs)):
            differ += 1
            print(f"{what}: {ours}, not {theirs}")

    with tempfile.TemporaryDirectory() as folder:
        for name, hypotheses, references in corpora():
            hypotheses = [line.rstrip() for line in hypotheses]
            references = [[line.rstrip() for line in lines] for lines in references]
            files = [f"reference.{number}" for number in range(len(references))]
            for file, lines in zip(files, references):
                (pathlib.Path(folder) / file).write_bytes("".join(line + "\n" for line in lines).encode())
            before = compared
            for metric, settings, args in SETTINGS:
                args = f"{args} --decimals 12 --reference {' '.join(files)}"
                each = {"effective_order": True} if metric is BLEU else {}
                metric_of_each = metric(**settings, **each)
                ours = run(folder, f"{args} --sentences", hypotheses).split()
                for number, line in enumerate(zip(hypotheses, *references)):
                    theirs = metric_of_each.sentence_score(line[0], list(line[1:])).score
                    same(float(ours[number]), theirs, f"{name}, {args}, line {number + 1}: {line}")
                score = metric(**settings).corpus_score(hypotheses, references)
                json_ = json.loads(run(folder, f"{args} --json", hypotheses))
                same(json_["score"], score.score, f"{name}, {args}")
                if json_.get("verbose_score", "") != score._verbose:
                    sys.exit(f"{json_['verbose_score']}, not {score._verbose}")
            for metric, kind in [(BLEU, "bleu"), (CHRF, "chrf"), (TER, "ter")]:
                args = f"{kind} --decimals 12 --json --reference {' '.join(files)}"
                score = metric().corpus_score(hypotheses, references, n_bootstrap=200)
                json_ = json.loads(run(folder, f"{args} --confidence --samples 200", hypotheses))
                same(json_["confidence_mean"], score._mean, f"{name}, {args}: mean")
                same(json_["confidence_var"], score._ci, f"{name}, {args}: half width")
                other = [perturbed(line, 0.02) for line in hypotheses]
                (pathlib.Path(folder) / "other").write_bytes("".join(line + "\n" for line in other).encode())
                other = [line.rstrip() for line in other]
                for test, flag in [("bs", "bootstrap"), ("ar", "randomization")]:
                    systems = [("a", hypotheses), ("b", other)]
                    _, scores = PairedTest(systems, {kind: metric()}, references, test, 200)()
                    (theirs,) = (results for key, results in scores.items() if key != "System")
                    ours = json.loads(run(folder, f"{args} --paired other --test {flag} --samples 200", hypotheses))
                    for our, their in zip(ours, theirs):
                        (our,) = (value for key, value in our.items() if key != "system")
                        for key, value in vars(their).items():
                            if value is not None:
                                same(our[key], float(value), f"{name}, {args}, {test}: {key}")
            print(f"{name}: {compared - before} scores")
    print(f"{compared} scores compared, {differ} differ")


if __name__ == "__main__":
    main()
