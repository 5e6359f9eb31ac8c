"""Checks that transformers makes of the tokenizer in a folder that cloze saved what cloze makes of it.

    python tests/interop/saved_tokenizers.py CLOZE_PROGRAM

For every family a small model of random weights is saved by transformers with a tokenizer of its class, and written anew by
`cloze convert`. Of both folders `AutoTokenizer` must give the same ids, token types, masks and names of inputs for texts and
pairs in a padded batch, and pad on the same side; `AutoModelForSequenceClassification` must give the same logits from what
its own tokenizer gives. `cloze tokenizer encode` must give the same ids. Then encoders are pretrained by `cloze train` for two
steps, with WordPiece and with BPE of bytes, and their folders are held against `cloze tokenizer encode` and the family's inputs.
Run it with transformers 4.57 and 5.
"""

import json
import pathlib
import string
import subprocess
import sys
import tempfile

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

program = pathlib.Path(sys.argv[1]).resolve()
transformers.logging.set_verbosity_error()
torch.manual_seed(3)
torch.set_num_threads(1)
MAJOR = int(transformers.__version__.split(".")[0])
TEXTS = ["the old sea", "a", "", "Sailing boats, naïve ☃!", "the the the the the the"]
PAIRS = [("the old", "sea boats"), ("a", "the sea sea sea")]
SMALL = dict(
    hidden_size=16, dim=16, d_model=16, num_hidden_layers=1, n_layers=1, n_layer=1, num_attention_heads=2, n_heads=2, n_head=2,
    intermediate_size=24, hidden_dim=24, d_inner=24, embedding_size=16, max_position_embeddings=40, num_labels=2,
)
# Family: special pieces in the order of ids, those of cls, sep, pad, unk, mask, the class with a vocabulary, whether there
# are token types, the side of padding, and more of the config.
BERT = (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")
ROBERTA = (["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "<s>", "</s>", "<pad>", "<unk>", "<mask>")
FAMILIES = {
    "bert": (BERT, True, "right"),
    "electra": (BERT, True, "right"),
    "distilbert": (BERT, False, "right"),
    "mpnet": (ROBERTA, False, "right"),
    "roberta": (ROBERTA, False, "right"),
    "modernbert": (BERT, False, "right"),
    "deberta-v2": (BERT, True, "right"),
    "albert": (BERT, True, "right"),
    "xlnet": ((["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"], "<cls>", "<sep>", "<pad>", "<unk>", "<mask>"), True, "left"),
}
n, worst = 0, 0.0


def run(*args, given="", **more):
    done = subprocess.run([program, *map(str, args)], input=given.encode(), capture_output=True, **more)
    assert done.returncode == 0, f"cloze {args}: {done.stderr.decode()}"
    return done.stdout.decode()


def inputs(tokenizer):
    texts = tokenizer(TEXTS, padding=True)
    pairs = tokenizer([a for a, _ in PAIRS], [b for _, b in PAIRS], padding=True)
    return [{name: value for name, value in batch.items()} for batch in (texts, pairs)]


def names_agree(what, tokenizer, has_types, side):
    assert ("token_type_ids" in tokenizer.model_input_names) == has_types, f"{what}: {tokenizer.model_input_names}"
    assert tokenizer.padding_side == side, f"{what}: padded on the {tokenizer.padding_side}"


def ids_agree(what, folder, tokenizer):
    """Holds the ids of `cloze tokenizer encode` against those of transformers."""
    ours = run("tokenizer", "encode", "--tokenizer", folder, given="".join(text + "\n" for text in TEXTS)).splitlines()
    for text, line in zip(TEXTS, ours, strict=True):
        found, expected = [int(id) for id in line.split()], tokenizer(text)["input_ids"]
        assert found == expected, f"{what}: {text!r}: {found}, not {expected}"


def saved_by_transformers(family, folder):
    (special, cls, sep, pad, unk, mask), has_types, side = FAMILIES[family]
    words = "the old sea boats sail ##ing ##s sailing a na ##ive , !".split() + list(string.ascii_lowercase)
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(special + words))}
    backend = Tokenizer(models.WordPiece(vocab, unk_token=unk))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ids = [(cls, vocab[cls]), (sep, vocab[sep])]
    kind = 1 if has_types else 0
    single, pair = f"{cls} $A {sep}", f"{cls} $A {sep} $B:{kind} {sep}:{kind}"
    if family == "xlnet":
        single, pair = f"$A {sep} {cls}:2", f"$A {sep} $B:1 {sep}:1 {cls}:2"
    backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    names = ["input_ids", "token_type_ids", "attention_mask"] if has_types else ["input_ids", "attention_mask"]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token=cls, sep_token=sep, pad_token=pad, unk_token=unk, mask_token=mask,
        model_input_names=names, padding_side=side,
    )
    tokenizer.save_pretrained(folder)
    # XLNet has no end, and refuses to be told one.
    sizes = {key: value for key, value in SMALL.items() if (family, key) != ("xlnet", "max_position_embeddings")}
    config = AutoConfig.for_model(family, vocab_size=len(vocab), pad_token_id=vocab[pad], **sizes)
    if family == "roberta":
        config.type_vocab_size = 1  # as published; its class makes no token types
    elif has_types and family != "xlnet":
        config.type_vocab_size = 2
    model = AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    return model


with tempfile.TemporaryDirectory() as place:
    place = pathlib.Path(place)
    for family, (_, has_types, side) in FAMILIES.items():
        first, second = place / family / "saved", place / family / "converted"
        saved_by_transformers(family, first)
        config = json.loads((first / "tokenizer_config.json").read_text())
        # As those of before version 5 are: the class says it, and the file does not.
        for key in ("model_input_names", "padding_side"):
            config.pop(key, None)
        reference = AutoTokenizer.from_pretrained(first)
        (first / "tokenizer_config.json").write_text(json.dumps(config))
        run("convert", "--model", first, "--out", second)
        tokenizer = AutoTokenizer.from_pretrained(second)
        names_agree(family, tokenizer, has_types, side)
        assert inputs(tokenizer) == inputs(reference), f"{family}: {inputs(tokenizer)}, not {inputs(reference)}"
        ids_agree(family, second, tokenizer)
        logits = []
        for folder, made in ((first, reference), (second, tokenizer)):
            model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
            with torch.no_grad():
                logits.append(torch.cat([model(**{k: torch.tensor(v) for k, v in batch.items()}).logits for batch in inputs(made)]))
        worst = max(worst, (logits[0] - logits[1]).abs().max().item())
        assert worst < 1e-5, f"{family}: logits differ by {worst:.1e}"
        n += 1

    corpus = place / "corpus.txt"
    corpus.write_text("\n\n".join(f"The old sea {i}. A boat sails, and the sea is old.\nSailing boats sail {i}." for i in range(60)))
    for family, kind, has_types in (
        ("mpnet", "train-wordpiece", False), ("bert", "train-wordpiece", True), ("roberta", "train-wordpiece", True),
        ("roberta", "train-byte-bpe", True),
        ("electra", "train-wordpiece", True), ("distilbert", "train-wordpiece", False),
        ("modernbert", "train-wordpiece", False), ("albert", "train-wordpiece", True),
    ):
        what = f"{family} pretrained, {kind}"
        out = place / f"{family}-{kind}"
        run_file = place / f"{family}-{kind}.toml"
        objective = '[objective]\nkind = "replaced-tokens"\n' if family == "electra" else ""
        name = "" if family == "electra" else f'family = "{family}"\n'
        run_file.write_text(
            f'[run]\nname = "x"\nseed = 1\n[corpus]\nfiles = ["{corpus}"]\n[tokenizer]\nkind = "{kind}"\nvocab_size = 300\n'
            f'[examples]\nseq_len = 32\npairs = {{ kind = "doc-sentences" }}\n{objective}[model]\npreset = "tiny"\n{name}'
            'max_positions = 64\n[train]\nsteps = 2\nbatch_size = 4\n[optimizer]\nlr = 1e-4\n'
            '[schedule]\nkind = "linear"\nwarmup_steps = 1\n')
        run("train", run_file, "--out", out, "--device", "flex", cwd=place)
        folder = out / "model"
        tokenizer = AutoTokenizer.from_pretrained(folder)
        names_agree(what, tokenizer, has_types, "right")
        ids_agree(what, folder, tokenizer)
        config = json.loads((folder / "config.json").read_text())
        assert tokenizer.pad_token_id == config["pad_token_id"], f"{what}: padding is {tokenizer.pad_token_id}"
        n += 1
print(f"{n} folders: ids, token types, padding and answers agree with transformers {transformers.__version__}, {worst:.1e}")
