"""Checks that sentence-transformers loads what cloze trains, and cloze what sentence-transformers saves.

    python tests/interop/sentence_encoders.py CLOZE_PROGRAM

A BERT of small random weights is trained by `cloze train` for a few steps (`[task] kind = "embedding"`), with each pooling,
scaled or not. sentence-transformers must find the same modules, prompts, length and similarity in the result, and both must
give the same embeddings. The other way round, models with each pooling, with `Dense` modules, scaled and with prompts are
saved by sentence-transformers, and `cloze embed` must give the same embeddings, also of folders that `cloze convert` wrote
(all to 1e-5 of their scale).
"""

import io
import json
import pathlib
import random
import string
import subprocess
import sys
import tempfile

import numpy
import torch
from sentence_transformers import SentenceTransformer, models
from transformers import BertConfig, BertModel, BertTokenizerFast, logging

program = sys.argv[1]
logging.set_verbosity_error()  # of a pooler without weights, which embeddings do not need
random.seed(5)
torch.manual_seed(5)
WIDTH, MAX_LEN = 24, 20
PROMPTS = {"query": "ask: ", "document": "text: "}
worst, n = 0.0, 0


def words(n):
    return " ".join("".join(random.choices(string.ascii_lowercase, k=random.randint(1, 4))) for _ in range(n))


# Some are longer than what is read, one is empty.
TEXTS = [words(random.randint(1, 12)) for _ in range(30)] + ["", "x", "Upper CASE, naïve: 東京"]


def run(*args, given=""):
    return subprocess.run([program, *map(str, args)], input=given.encode(), check=True, capture_output=True).stdout


def agree(what, folder, model, *more, **kwargs):
    """Holds the embeddings of cloze against those of a model of sentence-transformers."""
    global worst, n
    ours = numpy.load(io.BytesIO(run("embed", "--model", folder, "--format", "npy", *more, given="\n".join(TEXTS) + "\n")))
    theirs = model.encode(TEXTS, batch_size=7, **kwargs)
    assert ours.shape == theirs.shape, f"{what}: {ours.shape}, not {theirs.shape}"
    difference = float(numpy.abs(ours - theirs).max() / numpy.abs(theirs).max())
    assert difference < 1e-5, f"{what}: the embeddings differ by {difference:.1e} of their scale"
    worst, n = max(worst, difference), n + 1


def prompts_agree(what, folder, model):
    for name, prompt in PROMPTS.items():
        agree(f"{what}, prompt {name}", folder, model, "--prompt", name, prompt_name=name)
        agree(f"{what}, prompt as text", folder, model, "--prompt-text", prompt, prompt=prompt)


def pooling_mode(module):
    """Its name in sentence-transformers 5 and 6."""
    return module.get_pooling_mode_str() if hasattr(module, "get_pooling_mode_str") else module.pooling_mode


def kinds(model):
    return [type(module).__name__ for module in model]


with tempfile.TemporaryDirectory() as place:
    place = pathlib.Path(place)
    letters = string.ascii_lowercase
    marks = [":", ",", "?"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters), *marks]
    (place / "vocab.txt").write_text("\n".join(pieces))
    tokenizer = BertTokenizerFast(str(place / "vocab.txt"), model_max_length=64)
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
        max_position_embeddings=64)
    bert = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():  # weights large enough to matter
        for parameter in bert.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    base = place / "bert"
    bert.save_pretrained(base)
    tokenizer.save_pretrained(base)

    def encoder():
        return models.Transformer(str(base), max_seq_length=MAX_LEN)

    # Theirs, read here.
    dense = lambda d_in, d_out, **more: models.Dense(d_in, d_out, **more)
    cases = [(pooling, [], False) for pooling in
             ["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]]
    cases += [
        ("mean", [], True),
        ("cls", [dense(WIDTH, 10)], False),
        ("max", [dense(WIDTH, 16, bias=False, activation_function=torch.nn.Identity())], True),
        ("mean", [dense(WIDTH, 32, activation_function=torch.nn.ReLU()), dense(32, 7, activation_function=torch.nn.GELU())],
         True),
    ]
    for number, (pooling, maps, scaled) in enumerate(cases):
        what = f"{pooling}, {len(maps)} Dense, {'scaled' if scaled else 'not scaled'}"
        modules = [encoder(), models.Pooling(WIDTH, pooling_mode=pooling), *maps, *([models.Normalize()] if scaled else [])]
        theirs = SentenceTransformer(
            modules=modules, device="cpu", prompts=PROMPTS, default_prompt_name="document" if number % 2 else None)
        saved, anew = place / f"theirs-{number}", place / f"theirs-{number}-anew"
        theirs.save_pretrained(str(saved), safe_serialization=number % 3 != 2)
        run("convert", "--model", saved, "--out", anew)
        for folder in (saved, anew):
            agree(what, folder, theirs)
            prompts_agree(what, folder, theirs)

    # Ours, read there. The base has prompts and a similarity; pooling and scaling are the run's.
    SentenceTransformer(
        modules=[encoder(), models.Pooling(WIDTH, pooling_mode="mean")], device="cpu", prompts=PROMPTS,
        similarity_fn_name="dot").save_pretrained(str(place / "start"))
    rows = [json.dumps({"text": words(4), "pair": words(5)}) for _ in range(24)]
    (place / "pairs.jsonl").write_text("\n".join(rows) + "\n")
    for pooling in ["mean", "cls", "max"]:
        for scaled in [False, True]:
            what = f"trained, {pooling}, {'scaled' if scaled else 'not scaled'}"
            out = place / f"ours-{pooling}-{scaled}"
            (place / "run.toml").write_text(f"""
[run]
name = "interop"
seed = 1

[task]
kind = "embedding"
loss = {{ kind = "in-batch-negatives" }}
pooling = "{pooling}"
normalize = {str(scaled).lower()}

[model]
path = {json.dumps(str(place / "start"))}

[data]
train = {{ files = [{json.dumps(str(place / "pairs.jsonl"))}], columns = {{ text = "text", pair = "pair" }} }}
dev = [{json.dumps(str(place / "pairs.jsonl"))}]
max_len = {MAX_LEN}

[train]
epochs = 1
batch_size = 8

[optimizer]
lr = 1e-3

[schedule]
kind = "linear"
""")
            run("train", place / "run.toml", "--out", out)
            ours = SentenceTransformer(str(out / "model"), device="cpu")
            assert kinds(ours) == ["Transformer", "Pooling"] + ["Normalize"] * scaled, f"{what}: {kinds(ours)}"
            assert pooling_mode(ours[1]) == pooling, f"{what}: {pooling_mode(ours[1])}"
            assert {name: ours.prompts[name] for name in PROMPTS} == PROMPTS, f"{what}: {ours.prompts}"
            assert ours.default_prompt_name is None, f"{what}: {ours.default_prompt_name}"
            assert ours.max_seq_length == MAX_LEN, f"{what}: {ours.max_seq_length}"
            assert str(ours.similarity_fn_name) == "dot", f"{what}: {ours.similarity_fn_name}"
            trained = ours[0].auto_model.state_dict()
            moved = max((trained[name] - value).abs().max().item() for name, value in bert.state_dict().items())
            assert moved > 1e-4, f"{what}: training moved no weight by more than {moved:.1e}"
            agree(what, out / "model", ours)
            prompts_agree(what, out / "model", ours)

print(f"{n} sets of embeddings agree, largest difference {worst:.1e} of their scale")
