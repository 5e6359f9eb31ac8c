"""Golden file for cloze-evaluation's scores of translations: what sacreBLEU says.

    python crates/evaluation/tests/data/translation/export.py

Needs sacrebleu 2.6.0 on NumPy 2 and Python 3.11 (from 3.12 on, Python's `sum` rounds differently in the last bit).
Writes golden.json beside this file. All text in it was written or drawn for this file.
"""

import json
import os
import pathlib
import random
import sys

import numpy
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

draw = random.Random(20_261_124)

# Corpora ---------------------------------------------------------------------------------------------

# Hypotheses with three references.
CAPTIONS = [
    ("A man in a red jacket is climbing a steep rock.", "A man wearing a red jacket climbs a steep cliff.",
     "A climber in red is going up a steep rock face.", "The man in the red jacket is climbing a steep rock."),
    ("Two dogs are playing with a ball, in the snow!", "Two dogs play with a ball in the snow.",
     "Dogs are playing in the snow with a ball.", "Two dogs are playing with a ball, in snow."),
    ("The girl don't like 3,5 litres of water.", "The girl doesn't like 3.5 litres of water.",
     "The girl does not like three and a half litres of water.", "3.5 litres of water: the girl doesn't like it."),
    ("people sits at the long table", "People sit at a long table (outside).",
     "Some people are sitting at a long table.", "People sitting at the long table."),
    ("", "A boat.", "A small boat.", "Boat"),
    ("Boat", "Boat", "A boat", "boat"),
    ("A A A A A A A A A A", "A bird in a tree", "A A bird", "The bird is in the tree."),
    ("in the tree sits today a small bird , it sings .", "Today a small bird sits in the tree; it sings.",
     "A small bird sits in the tree today and sings.", "A little bird is singing in the tree today."),
    ("He said: \"It's $1,234.50 (or 5%)...\" and left.", "He said, \"It's $1,234.50 (or 5 %) ...\", and left.",
     "\"It is $1234.50, or 5%,\" he said and left.", "He left, saying: 'It's $1,234.50, or 5%'."),
    ("R&amp;B-music &quot;live&quot; at the well-known club 7-9 &lt;free&gt;",
     "R&B music \"live\" at the well-known club, 7-9 <free>", "Live R&B at the famous club, 7 - 9, free",
     "R&B live at the club from 7 to 9 (free)"),
]

# Odd text: other scripts, marks, white space of all kinds, emptiness.
ODD = [
    ("我有3.5个苹果,好。", "我有3.5个苹果，好。"),
    ("これはテストです。カタカナも・ある", "これは試験です。カタカナもある。"),
    ("Ελληνικός ΛΌΓΟΣ, ΌΣΟ ΣΟΦΌΣ", "ελληνικός λόγος, όσο σοφός"),
    ("İstanbul'da ISPARTA ıssız", "istanbul'da ısparta ISSIZ"),
    ("Straße – „Größe“ … ½ m² + €5 → x", "STRASSE - \"Größe\" ... 1/2 m2 + 5€ → x"),
    ("한국어 문장입니다. 둘째 문장", "한국어 문장이다. 두 번째 문장"),
    ("नमस्ते दुनिया। यह परीक्षण है", "नमस्ते, दुनिया। यह एक परीक्षण है।"),
    ("مرحبا بالعالم، كيف الحال؟", "مرحبا بالعالم! كيف حالك؟"),
    ("e\u0301tude cafe\u0301 naïve \u200bzero", "étude café naïve zero"),
    ("\u3000full\u00a0width\u2003spaces\u1680here\u0085now\u001cand\u001fthen ", "full width spaces here now and then"),
    ("🙂 smile 👩‍👩‍👧 family 🇩🇪 flag", "🙂 smile 👩‍👧 family 🇫🇷 flag"),
    ("𠀋𠂢 rare 丽 hanzi 㐀㐁", "𠀋 rare 丽 㐀 hanzi"),
    ("   ", "words"),
    ("words", "   "),
    ("", ""),
    (".", ","),
    ("...,,,!!!???", "... ,,, !!! ???"),
    ("1,000,000.00 -5-6 a-1 1-a .5 5. ,5", "1.000.000,00 -5 -6 a -1 1 -a 0.5 5 5"),
    ("<skipped>text end-\nof-line\nnew line", "text endof-line new line"),
    ("That is the dog's. It's the cat's, too; 's 's", "That is the dog's. It's the cat's, too; 's 's"),
    ("≋'s㋐ゕ∅へ 車&amp;quot;落 5.-6.-'s", "≋'s㋐ゕ∅へ 車&amp;quot;落 5.-6.-'s"),
    ("\ufeffmark \ufffd\u2028line sep", "mark � line sep"),
]

WORDS = """the a of to and in is it on that cat dog house tree runs sees green small, old; new. (big) 12 3.5 well-known
it's "no" state-of-the-art Die Straße größer éclair""".split()


def sentence(n):
    return " ".join(draw.choice(WORDS) for _ in range(n))


def perturbed(line, rate):
    """The line with words replaced, left out, doubled and moved."""
    words = line.split()
    result = []
    for word in words:
        chance = draw.random()
        if chance < rate / 4:
            continue
        if chance < rate / 2:
            result.append(draw.choice(WORDS))
        elif chance < rate * 3 / 4:
            result += [word, word]
        else:
            result.append(word)
    if result and draw.random() < 2 * rate:
        at, to = draw.randrange(len(result)), draw.randrange(len(result))
        length = draw.randint(1, 4)
        moved = result[at:at + length]
        del result[at:at + length]
        result[to:to] = moved
    return " ".join(result)


def generated(n, n_references, rate):
    originals = [sentence(draw.choice([1, 2, 3, 5, 8, 12, 20, 30])) for _ in range(n)]
    references = [[perturbed(line, 0.2) for line in originals] for _ in range(n_references)]
    return [perturbed(line, rate) for line in originals], references


def long_lines():
    """Lines with very many words to move, and of very different lengths: where TER's search reaches its limits."""
    few = WORDS[:12]
    drawn = lambda n: " ".join(draw.choice(few) for _ in range(n))
    many = " ".join(f"w{number}" for number in range(90))
    halves = many.split()[45:] + many.split()[:45]
    lines = [(drawn(150), drawn(140)), (drawn(2), drawn(160)), (drawn(160), drawn(2)), (many, " ".join(halves)),
             (many, " ".join(many.split()[::-1])), (drawn(20), drawn(150))]
    return [line[0] for line in lines], [[line[1] for line in lines]]


def corpora():
    captions = [list(column) for column in zip(*CAPTIONS)]
    odd = [list(column) for column in zip(*ODD)]
    all_ = {
        "captions": (captions[0], captions[1:]),
        "captions, one reference": (captions[0], captions[1:2]),
        "odd": (odd[0], odd[1:]),
        "nothing in common": (["x y z", "u v"], [["a b c", "d e"]]),
        "nothing": (["", ""], [["", ""]]),
        "no hypothesis": (["", ""], [["a b c", "d"]]),
        "one short line": (["a cat"], [["a cat sits"]]),
        "one word": (["cat"], [["cat"]]),
        "same": (captions[1], captions[1:2]),
    }
    for n_references, rate in [(1, 0.1), (1, 0.5), (2, 0.3), (3, 0.3)]:
        all_[f"generated {n_references} {rate}"] = generated(30, n_references, rate)
    return all_


# Scores ----------------------------------------------------------------------------------------------

BLEUS = [
    {},
    {"lowercase": True},
    *({"tokenize": name} for name in ["intl", "zh", "char", "none"]),
    *({"smooth_method": name} for name in ["floor", "add-k", "none"]),
    {"smooth_method": "floor", "smooth_value": 0.015},
    {"smooth_method": "add-k", "smooth_value": 0.7},
    {"effective_order": True},
    {"effective_order": True, "smooth_method": "none", "tokenize": "char", "lowercase": True},
]


CHRFS = [
    {},
    {"word_order": 2},
    {"lowercase": True, "whitespace": True},
    {"eps_smoothing": True, "word_order": 1},
    {"char_order": 3, "beta": 1, "word_order": 3, "eps_smoothing": True, "whitespace": True},
]
TERS = [
    {},
    {"normalized": True},
    {"no_punct": True, "case_sensitive": True},
    {"normalized": True, "asian_support": True},
    {"normalized": True, "asian_support": True, "no_punct": True},
    {"asian_support": True, "no_punct": True},
]
METRICS = {"bleu": BLEU, "chrf": CHRF, "ter": TER}


def shown(score, metric):
    signature = metric.get_signature().format()
    return {
        "score": float(score.score),
        "line": score.format(width=2, signature=signature),
        "json": json.loads(score.format(width=1, signature=signature, is_json=True)),
    }


def scored(metric, hypotheses, references, each):
    result = shown(metric.corpus_score(hypotheses, references), metric)
    lines = zip(hypotheses, *references) if each else []
    result["sentences"] = [float(metric.sentence_score(line[0], list(line[1:])).score) for line in lines]
    return result


def cases(kind, texts, all_settings):
    for name, (hypotheses, references) in texts.items():
        for settings in all_settings:
            each = name in ("captions", "odd")
            yield {"corpus": name, "settings": settings,
                   **scored(METRICS[kind](**settings), hypotheses, references, each)}


# Samples ---------------------------------------------------------------------------------------------

SAMPLED = [("bleu", {}), ("bleu", {"smooth_method": "add-k", "smooth_value": 0.7, "tokenize": "char"}),
           ("chrf", {}), ("chrf", {"word_order": 2, "eps_smoothing": True}), ("ter", {})]


def confidences(texts):
    for name in ["captions", "generated 1 0.1", "generated 1 0.5", "generated 3 0.3"]:
        for kind, settings in SAMPLED:
            for n, seed in [(1000, 12345), (203, 7)]:
                os.environ["SACREBLEU_SEED"] = str(seed)
                metric = METRICS[kind](**settings)
                score = metric.corpus_score(*texts[name], n_bootstrap=n)
                yield {"corpus": name, "metric": kind, "settings": settings, "n": n, "seed": seed,
                       "mean": float(score._mean), "half_width": float(score._ci), **shown(score, metric)}


def drawn_systems(texts):
    rates = {"captions": [0.0, 0.3], "generated 1 0.1": [0.0, 0.02, 0.1], "generated 2 0.3": [0.05]}
    return {name: [[perturbed(line, rate) for line in texts[name][0]] for rate in of_text]
            for name, of_text in rates.items()}


def comparisons(texts, all_systems):
    for name, systems in all_systems.items():
        hypotheses, references = texts[name]
        for kind, settings in SAMPLED:
            for test, n, seed in [("bs", 1000, 12345), ("ar", 500, 12345), ("bs", 57, 99), ("ar", 57, 1 << 33)]:
                os.environ["SACREBLEU_SEED"] = str(seed)
                named = [(str(number), lines) for number, lines in enumerate([hypotheses, *systems])]
                test_ = PairedTest(named, {kind: METRICS[kind](**settings)}, references, test, n)
                signatures, scores = test_()
                (metric, signature), = signatures.items()
                results = [{key: None if value is None else float(value) for key, value in vars(result).items()}
                           for result in scores[metric]]
                yield {"corpus": name, "metric": kind, "settings": settings, "test": test,
                       "n": n, "seed": seed, "signature": signature.format(), "results": results}


def main():
    sacrebleu.metrics.bleu.sacrelogger.setLevel("ERROR")
    texts = corpora()
    long = long_lines()
    systems = drawn_systems(texts)
    golden = {
        "versions": {"sacrebleu": sacrebleu.__version__, "numpy": numpy.__version__,
                     "python": sys.version.split()[0]},
        "corpora": {name: {"hypotheses": hypotheses, "references": references}
                    for name, (hypotheses, references) in {**texts, "long": long}.items()},
        "systems": systems,
        "bleu": list(cases("bleu", texts, BLEUS)),
        "chrf": list(cases("chrf", texts, CHRFS)),
        "ter": list(cases("ter", {**texts, "long": long}, TERS)),
        "confidence": list(confidences(texts)),
        "comparisons": list(comparisons(texts, systems)),
    }
    path = pathlib.Path(__file__).with_name("golden.json")
    path.write_text(json.dumps(golden, ensure_ascii=True) + "\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
