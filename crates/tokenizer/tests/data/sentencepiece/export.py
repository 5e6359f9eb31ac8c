"""Trains the small SentencePiece models beside this file and writes what transformers makes of them.

python3 -m pip install sentencepiece==0.2.3 transformers==4.57.6 protobuf
python3 export.py

Writes, for every model: NAME.model, NAME.json (the converter's tokenizer.json) and in expected.json texts
with the ids that SentencePiece itself gives. The text to train on is the project's own.
"""

import json
import pathlib
import warnings

import sentencepiece as spm
from transformers.convert_slow_tokenizer import LlamaConverter, SpmConverter

HERE = pathlib.Path(__file__).parent

TEXT = """The old sailor sails the old sea, and the sea is old.
Sailing boats sail; old boats sink. New boats sail on newer seas!
A tokenizer cuts a text into pieces: words, parts of words, letters.
Every piece has a probability, and the most probable pieces win.
Lower, lowest, newer, newest, wider, widest: what ends alike is a piece.
In 1912 a ship of 46,328 tons sank; 3.14 is not a ship.
Naïve façade, déjà vu, Ærøskøbing, Straße, Ελλάδα, Москва.
日本語の文章には空白がありません。東京は日本の首都です。
The sailor's daughter sailed a sailing boat of her own.
""".splitlines()

# Normalisation rules, as code points: from, to. Short ones win over long ones that begin alike.
RULES = """\
FF21\t41
FF22\t42
FF41\t61
3000\t20
9\t20
AD\t
200B\t
2026\t2E 2E 2E
FB01\t66 69
BD\t31 2F 32
65 301\tE9
61 308\tE4
915 301\t915
1F600\t3A 29
2122\t54 4D
"""

TRAIN = {
    "unigram": dict(model_type="unigram", vocab_size=150, user_defined_symbols=["<sep>", "ship"]),
    "unigram-bytes": dict(model_type="unigram", vocab_size=400, byte_fallback=True, control_symbols=["<mask>"]),
    "unigram-plain": dict(
        model_type="unigram", vocab_size=140, normalization_rule_name="identity", add_dummy_prefix=False,
        remove_extra_whitespaces=False, unk_id=2, bos_id=0, eos_id=1, pad_id=3,
    ),
    "bpe": dict(model_type="bpe", vocab_size=180),
    "bpe-bytes": dict(
        model_type="bpe", vocab_size=420, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True,
    ),
}

TEXTS = TEXT + [
    "",
    " ",
    "  two  spaces ",
    "sailing the newest boat",
    "ＡＢａ\u3000ﬁn… ½™ 😀",
    "cafe\u0301 a\u0308 \u0393\u0301",
    "soft\u00adhyphen\u200bzero",
    "unknown: ☃ 𝄞 𝄞𝄞 ж",
    "a<sep>b ship<sep>",
    "tab\tand\nline",
    "▁meta ▁▁",
]


class Original:
    """What a converter asks the slow tokenizer for."""

    def __init__(self, path):
        self.vocab_file = str(path)
        self.processor = spm.SentencePieceProcessor(model_file=str(path))

    def convert_ids_to_tokens(self, id):
        return self.processor.id_to_piece(id)


class ByteFallback(SpmConverter):
    """As Moshi's and Helium's converters have it."""

    handle_byte_fallback = True
    decoder = LlamaConverter.decoder


CONVERTERS = {"bpe-bytes": LlamaConverter, "unigram-bytes": ByteFallback}


def main():
    expected = []
    (HERE / "rules.tsv").write_text(RULES)
    for name, settings in TRAIN.items():
        path = HERE / f"{name}.model"
        if "normalization_rule_name" not in settings:
            settings = dict(settings, normalization_rule_tsv=str(HERE / "rules.tsv"))
        with open(path, "wb") as file:
            spm.SentencePieceTrainer.train(
                sentence_iterator=iter(TEXT), model_writer=file, hard_vocab_limit=False, minloglevel=2,
                character_coverage=1.0, **settings,
            )
        original = Original(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tokenizer = CONVERTERS.get(name, SpmConverter)(original).converted()
        converted = json.loads(tokenizer.to_str())
        (HERE / f"{name}.json").write_text(json.dumps(converted, ensure_ascii=False, indent=1) + "\n")
        for text in TEXTS:
            expected.append(dict(model=name, text=text, ids=original.processor.encode(text)))
    (HERE / "rules.tsv").unlink()
    lines = ",\n".join(json.dumps(e, ensure_ascii=False) for e in expected)
    (HERE / "expected.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
