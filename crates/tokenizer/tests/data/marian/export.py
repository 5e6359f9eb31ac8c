"""Makes two small folders as the OPUS-MT models have them, and writes what transformers makes of texts with them.

python3 -m pip install sentencepiece==0.2.1 transformers==4.57.6 torch
python3 export.py

`joint` has one vocabulary for both languages, `separate` one for each. In both the vocabularies lack some pieces of the
models, and have some that no model has. expected.json has the ids of texts in either language, and decoded texts.
"""

import json
import pathlib
import random
import warnings

import sentencepiece as spm

warnings.simplefilter("ignore")
from transformers import MarianTokenizer  # noqa: E402

HERE = pathlib.Path(__file__).parent

SOURCE = """The old sailor sails the old sea, and the sea is old.
Sailing boats sail; old boats sink. New boats sail on newer seas!
A tokenizer cuts a text into pieces: words, parts of words, letters.
In 1912 a ship of 46,328 tons sank; 3.14 is not a ship.
The sailor's daughter sailed a sailing boat of her own.
""".splitlines()

TARGET = """Le vieux marin navigue sur la vieille mer, et la mer est vieille.
Les bateaux naviguent ; les vieux bateaux coulent. Où est l'île ?
La fille du marin a navigué sur son propre bateau à voile.
Москва, Ελλάδα, Straße: des mots d'ailleurs.
""".splitlines()

# Normalisation rules, as code points: from, to. Long ones win over short ones that begin alike.
RULES = """\
FF21\t41
3000\t20
9\t20
A\t20
AD\t
200B\t
2026\t2E 2E 2E
B4\t20 301
BD\t31 2F 32
41\t61
41 30A\tE5
65 301\tE9
65 301 301\tEA
1112 1161 11AB\tD55C
"""

TRAIN = {
    "joint": [dict(vocab_size=120, user_defined_symbols=["ship"]), dict(vocab_size=130)],
    "separate": [
        dict(vocab_size=110, normalization_rule_name="identity", remove_extra_whitespaces=False),
        dict(vocab_size=400, byte_fallback=True),
    ],
}

TEXTS = SOURCE[:2] + TARGET + [
    "",
    " ",
    "  two  spaces ",
    "\t\n",
    ">>fr<< The old sea",
    ">>fr<<The old sea",
    ">>xx<< The old sea",
    " >>fr<< The old sea",
    "The >>fr<< old sea",
    ">>fr The old sea",
    ">>fr<<",
    ">>de<<>>fr<< sea",
    "sea</s>sea </s> >>fr<< sea",
    "sea</s>>>fr<<sea<pad>",
    "<unk> sea <s>sea",
    "A\u030a A e\u0301 e\u0301\u0301 e\u0301\u0301\u0301 \u1112\u1161\u11ab",
    "Ａ\u3000sea… ½\u00b4a \u00b4",
    "soft\u00adhyphen\u200bzero\u200b",
    "\u200b",
    "unknown: ☃ 𝄞 𝄞𝄞☃ ж Москва Ж 😀👩‍👩‍👧 中文",
    "tab\tand\nline",
    "▁meta ▁▁ a▁",
    "▁",
    "\u202eabc \x00 \x1b[31m",
    "ship shipships a ship",
    "naïve café, l'île",
    "x" * 300,
    "0123456789 " * 20,
]


def main():
    expected = []
    (HERE / "rules.tsv").write_text(RULES)
    for name, sides in TRAIN.items():
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        pieces = []
        for side, text, settings in zip(["source", "target"], [SOURCE, TARGET], sides):
            path = folder / f"{side}.spm"
            if "normalization_rule_name" not in settings:
                settings = dict(settings, normalization_rule_tsv=str(HERE / "rules.tsv"))
            with open(path, "wb") as file:
                spm.SentencePieceTrainer.train(
                    sentence_iterator=iter(text), model_writer=file, hard_vocab_limit=False, minloglevel=2,
                    character_coverage=1.0, **settings,
                )
            processor = spm.SentencePieceProcessor(model_file=str(path))
            own = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
            # Some pieces are missing.
            pieces.append([piece for i, piece in enumerate(own) if i % 11 != 5])

        def vocab(all):
            all = ["</s>", "<unk>", ">>fr<<", ">>de<<", "☃", "𝄞𝄞☃"] + all + ["<pad>"]
            return {piece: i for i, piece in enumerate(dict.fromkeys(all))}

        config = {"source_lang": "en", "target_lang": "fr", "model_max_length": 512}
        if name == "joint":
            vocabs = {"vocab.json": vocab(sorted(pieces[0] + pieces[1]))}
        else:
            vocabs = {"vocab.json": vocab(pieces[0])}
            # The same number for padding, as models need it.
            target = vocab(pieces[1])
            del target["<pad>"]
            target = [piece for piece in target if piece != ">>fr<<"]
            target.insert(vocabs["vocab.json"]["<pad>"], "<pad>")
            vocabs["target_vocab.json"] = {piece: i for i, piece in enumerate(target)}
            config["separate_vocabs"] = True
        for file, ids in vocabs.items():
            (folder / file).write_text(json.dumps(ids, ensure_ascii=False) + "\n")
        (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")

        tokenizer = MarianTokenizer.from_pretrained(folder)
        decode = lambda ids, skip: tokenizer.decode(ids, skip_special_tokens=skip)  # noqa: E731
        draw = random.Random(7)
        for text in TEXTS:
            source = tokenizer(text)["input_ids"]
            target = tokenizer(text_target=text)["input_ids"]
            expected.append(dict(folder=name, text=text, source=source, target=target, decoded=decode(target, True)))
        for _ in range(12):
            ids = [draw.randrange(len(tokenizer.decoder)) for _ in range(draw.randrange(1, 30))]
            special = [draw.choice([0, 1, 2, draw.randrange(3, 40)]) for _ in range(8)]
            for ids in [ids, special]:
                expected.append(dict(folder=name, ids=ids, skipped=decode(ids, True), whole=decode(ids, False)))
    (HERE / "rules.tsv").unlink()
    lines = ",\n".join(json.dumps(e, ensure_ascii=False) for e in expected)
    (HERE / "expected.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
