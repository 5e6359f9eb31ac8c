"""Writes the folders beside this file as transformers 4.57.6 saves its slow tokenizers, and in
`expected.json` what its fast ones make of them: ids of each text alone and with "the old", and the decoded
text without special tokens.

    python export.py
"""

import json
from pathlib import Path

from transformers import AutoTokenizer, BertTokenizer, GPT2Tokenizer, RobertaTokenizer
from transformers.models.gpt2.tokenization_gpt2 import bytes_to_unicode

HERE = Path(__file__).parent
TEXTS = ["the old Été <mask> sailors <extra>x, the [NEW] été", "  the [MASK] old<mask>", ""]


def bert():
    folder = HERE / "bert"
    folder.mkdir(exist_ok=True)
    vocab = "[PAD] [UNK] [CLS] [SEP] [MASK] the old sail ##or ##s ete Été , [NEW]".split()
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    tokenizer = BertTokenizer(
        folder / "vocab.txt", do_lower_case=False, strip_accents=True, model_max_length=77
    )
    tokenizer.add_tokens(["<extra>"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["[NEW]"]})
    return folder, tokenizer


def byte_level(name, kind, special, **settings):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    merged = ["th", "the", "Ġthe", "Ġold", "Ġo", "ld"]
    vocab = special + list(bytes_to_unicode().values()) + merged
    ids = {token: i for i, token in enumerate(vocab)}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False))
    merges = ["#version: 0.2", "t h", "th e", "Ġ the", "Ġ o", "l d", "Ġo ld"]
    (folder / "merges.txt").write_text("\n".join(merges) + "\n")
    tokenizer = kind(folder / "vocab.json", folder / "merges.txt", **settings)
    tokenizer.add_tokens(["<extra>"])
    return folder, tokenizer


gpt2 = byte_level("gpt2", GPT2Tokenizer, ["<|endoftext|>"], model_max_length=int(1e30), add_bos_token=True)
gpt2[1].add_special_tokens({"pad_token": "<pad>"})
special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
roberta = byte_level("roberta", RobertaTokenizer, special, model_max_length=99, add_prefix_space=True)

expected = {}
for folder, slow in [bert(), roberta, gpt2]:
    slow.save_pretrained(folder)
    for other in ["special_tokens_map.json", "added_tokens.json"]:
        (folder / other).unlink(missing_ok=True)
    fast = AutoTokenizer.from_pretrained(folder)
    expected[folder.name] = [
        [
            ids := fast(text)["input_ids"],
            fast(text, "the old")["input_ids"],
            fast.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False),
        ]
        for text in TEXTS
    ]
(HERE / "expected.json").write_text(json.dumps({"texts": TEXTS, "exp": expected}))
