"""Trains a small SentencePiece model for every class of transformers that is published with such a file alone, and
writes what transformers makes of each folder.

    python3 -m pip install sentencepiece==0.2.1 transformers==4.57.6 protobuf torch && python3 export.py
    python3 -m pip install transformers==5.24.0 && python3 export.py

Run with 4.57.6 first, which trains. Each run writes `expected-4.json` or `expected-5.json`: by folder, for every text
its ids, for every pair ids and token types, and the special tokens with their ids.
"""

import json
import os
import pathlib
import shutil
import tempfile

import sentencepiece as spm
import transformers
from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).parent
MAJOR = transformers.__version__.split(".")[0]

TEXT = """The old sailor sails the old sea, and the sea is old.
Sailing boats sail; old boats sink. New boats sail on newer seas!
A tokenizer cuts a text into pieces: words, parts of words, letters.
Lower, lowest, newer, newest, wider, widest: what ends alike is a piece.
In 1912 a ship of 46,328 tons sank; 3.14 is not a ship. 9, 9, 9, 9, 8, 8, 8, 7, 7, 2000, 2000,
Naïve façade, déjà vu, Ærøskøbing, Straße, Москва. don't "stop" it's
""".splitlines()

# Normalisation rules, as code points: from, to. All of SentencePiece's would take 240 kB a model.
RULES = """\
FF21\t41
FF22\t42
FF41\t61
3000\t20
9\t20
A\t20
AD\t
200B\t
2026\t2E 2E 2E
FB01\t66 69
BD\t31 2F 32
65 301\tE9
61 308\tE4
2122\t54 4D
"""

bos = dict(unk_id=0, bos_id=1, eos_id=2)
deberta = dict(pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]")
t5 = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
albert = dict(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"])
xlnet = dict(bos, control_symbols=["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"], user_defined_symbols=["<eop>", "£"])

MODELS = {
    "deberta": deberta, "xlm-roberta": bos, "albert": albert, "xlnet": xlnet, "t5": t5, "mt5": dict(t5, byte_fallback=True),
    "llama": dict(bos, model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, normalization_rule_name="identity"),
}

# Files without a folder's settings: pieces as SentencePiece has them.
BARE = {
    "bare-prefix": dict(bos, model_type="bpe", add_dummy_prefix=False),
    "bare-bytes": dict(bos, model_type="bpe", byte_fallback=True),
    "bare-unigram": dict(bos, add_dummy_prefix=False),
}

# Folder: model, the name of its file, config.json, tokenizer_config.json.
FOLDERS = {
    "deberta": ("deberta", "spm.model", {"model_type": "deberta-v2"}, {"do_lower_case": False, "vocab_type": "spm"}),
    "deberta-lower": ("deberta", "spm.model", {"model_type": "deberta-v2"}, {"do_lower_case": True, "split_by_punct": True}),
    "xlm-roberta": ("xlm-roberta", "sentencepiece.bpe.model", {"model_type": "xlm-roberta"}, {"model_max_length": 512}),
    "camembert": ("xlm-roberta", "sentencepiece.bpe.model", {"model_type": "camembert"}, None),
    "albert": ("albert", "spiece.model", {"model_type": "albert"}, None),
    "albert-cased": ("albert", "spiece.model", {"model_type": "albert"}, {"do_lower_case": False, "keep_accents": True}),
    "xlnet": ("xlnet", "spiece.model", {"model_type": "xlnet"}, None),
    "xlnet-lower": ("xlnet", "spiece.model", {"model_type": "xlnet"}, {"do_lower_case": True}),
    "t5": ("t5", "spiece.model", {"model_type": "t5"}, None),
    "t5-ten": ("t5", "spiece.model", {"model_type": "t5"}, {"extra_ids": 10}),
    "t5-new": ("t5", "spiece.model", {"model_type": "t5"}, {"tokenizer_class": "T5Tokenizer", "legacy": False}),
    "llama": ("llama", "tokenizer.model", {"model_type": "llama"}, {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": True, "add_eos_token": True, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}),
    "llama-silent": ("llama", "tokenizer.model", {"model_type": "llama"}, {"tokenizer_class": "LlamaTokenizer"}),
    "llama-new": ("llama", "tokenizer.model", {"model_type": "llama"}, {"tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}),
    "mt5": ("mt5", "spiece.model", {"model_type": "mt5"}, {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "additional_special_tokens": None}),
}

TEXTS = [
    "The old sailor sails.", "  two  spaces ", "", " ", "unknown: ☃ 𝄞𝄞 ж", "ＡＢａ\u3000ﬁn… ½™ 😀", "cafe\u0301 a\u0308 Été",
    "tab\tand\nline", "``quoted'' text", "a<mask> b <mask>c", "a [MASK] b[SEP]c [CLS]", "<s> x </s> y<pad>", "<sep><cls> <eop>x £5",
    "In 1912, a 9, ship, 2000,", "▁meta ▁▁", "a <extra_id_0> b<extra_id_99> <extra_id_3>", "don't \"stop\"!", "Москва, СТРАSSE İ",
    "soft\u00adhyphen\u200bzero", "<unk> [UNK] <s>NOTUSED",
]
PAIRS = [("the old sea", "sails"), ("a", "."), ("New boats", "the <mask> [MASK]")]

if MAJOR == "4":
    with tempfile.TemporaryDirectory() as folder:
        text, rules = pathlib.Path(folder, "text.txt"), pathlib.Path(folder, "rules.tsv")
        text.write_text("\n".join(TEXT))
        rules.write_text(RULES)
        for name, training in (MODELS | BARE).items():
            rules_of = {} if "normalization_rule_name" in training else {"normalization_rule_tsv": str(rules)}
            training = {"model_type": "unigram"} | rules_of | training
            spm.SentencePieceTrainer.train(
                input=str(text), model_prefix=str(pathlib.Path(folder, name)),
                vocab_size=480 if training.get("byte_fallback") else 210, hard_vocab_limit=False,
                character_coverage=1.0, minloglevel=2, num_threads=1, **training,
            )
            shutil.copy(pathlib.Path(folder, name + ".model"), HERE)

folders = {name: dict(zip(["model", "file", "config", "tokenizer_config"], parts)) for name, parts in FOLDERS.items()}
expected = {"texts": TEXTS, "pairs": PAIRS, "folders": folders, "exp": {}}
for name, (model, file, config, tokenizer_config) in FOLDERS.items():
    folder = pathlib.Path(tempfile.mkdtemp())
    shutil.copy(HERE / (model + ".model"), folder / file)
    (folder / "config.json").write_text(json.dumps(config))
    if tokenizer_config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    special = {part: str(getattr(tokenizer, part)) for part in tokenizer.SPECIAL_TOKENS_ATTRIBUTES
               if part.endswith("_token") and getattr(tokenizer, part) is not None}
    pairs = [tokenizer(a, b, return_token_type_ids=True) for a, b in PAIRS]
    expected["exp"][name] = {
        "class": type(tokenizer).__name__,
        "size": len(tokenizer),
        "special": {part: [token, tokenizer.convert_tokens_to_ids(token)] for part, token in special.items()},
        "texts": [tokenizer(text)["input_ids"] for text in TEXTS],
        "pairs": [[pair["input_ids"], pair["token_type_ids"]] for pair in pairs],
        "decoded": [tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True, clean_up_tokenization_spaces=False) for text in TEXTS],
    }
    if "DUMP" in os.environ:
        tokenizer.save_pretrained(os.environ["DUMP"] + "/" + name)
    shutil.rmtree(folder)
if MAJOR == "4":
    # Not special pieces, which it takes for text, nor its own sign for a space.
    plain = [text for text in TEXTS if not any(special in text for special in ["<s>", "</s>", "<unk>", "▁"])]
    own = {name: spm.SentencePieceProcessor(model_file=str(HERE / (name + ".model"))) for name in BARE}
    expected["bare"] = {name: [[text, model.encode(text)] for text in plain] for name, model in own.items()}
(HERE / f"expected-{MAJOR}.json").write_text(json.dumps(expected, ensure_ascii=False, indent=0) + "\n")
