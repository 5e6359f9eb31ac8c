"""Checks that `cloze predict` says of transformers' own models what transformers' pipelines say of them.

    python tests/interop/asked.py CLOZE_PROGRAM

Models of small random weights are saved by transformers, and written anew by `cloze convert` in shards, which
transformers must load without a key missing or unexpected. Of both the entities of the token-classification
pipeline (each word by its first piece), the answers of the question-answering pipeline (contexts of one window: its
scores of windows are not comparable) and the probabilities of choices must be the same.
"""

import json
import pathlib
import random
import string
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import (
    BertConfig, BertForMultipleChoice, BertForQuestionAnswering, BertForTokenClassification, BertTokenizerFast,
    pipeline)

program = sys.argv[1]
random.seed(5)
torch.manual_seed(5)
labels = dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))


def words(n):
    return ["".join(random.choices(string.ascii_lowercase + "éü", k=random.randint(1, 4))) for _ in range(n)]


def text(n):
    return (" " * random.randint(1, 2)).join(words(n))


def ask(folder, lines):
    given = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(
        [program, "predict", "--model", folder], input=given, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def entities(model, tokenizer, folder):
    texts = [text(random.randint(1, 30)) for _ in range(40)]
    find = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="first")
    n = 0
    for line, ours, theirs in zip(texts, ask(folder, [{"text": line} for line in texts]), find(texts)):
        expected = [(entity["entity_group"], entity["start"], entity["end"]) for entity in theirs]
        found = [(entity["type"], entity["start"], entity["end"]) for entity in ours["entities"]]
        assert found == expected, f"{line}\n{found}\n{expected}"
        assert all(entity["text"] == line[entity["start"]:entity["end"]] for entity in ours["entities"])
        n += len(found)
    assert n > 40, n
    return n


def answers(model, tokenizer, folder):
    lines = [{"question": text(4), "context": text(random.randint(1, 40))} for _ in range(40)]
    find = pipeline("question-answering", model=model, tokenizer=tokenizer)
    for line, ours in zip(lines, ask(folder, lines)):
        theirs = find(**line, max_answer_len=30, max_seq_len=384, align_to_words=False)
        found = (ours["answer"], ours["start"], ours["end"])
        assert found == (theirs["answer"], theirs["start"], theirs["end"]), f"{line}\n{ours}\n{theirs}"
    return len(lines)


def choices(model, tokenizer, folder):
    lines = [{"text": text(8), "choices": [text(3) for _ in range(random.randint(2, 5))]} for _ in range(40)]
    for line, ours in zip(lines, ask(folder, lines)):
        n = len(line["choices"])
        given = tokenizer([line["text"]] * n, line["choices"], padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**{name: value.unsqueeze(0) for name, value in given.items()}).logits[0]
        scores = torch.softmax(logits, -1)
        assert ours["choice"] == scores.argmax().item(), line
        assert torch.allclose(torch.tensor(ours["scores"]), scores, atol=1e-4), f"{ours}\n{scores}"
    return len(lines)


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    letters = string.ascii_lowercase
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=512)
    shape = dict(
        vocab_size=len(pieces), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        initializer_range=0.4)
    for kind, check, more in [
        (BertForTokenClassification, entities, {"id2label": labels}),
        (BertForQuestionAnswering, answers, {}),
        (BertForMultipleChoice, choices, {}),
    ]:
        if check is answers and int(transformers.__version__.split(".")[0]) >= 5:
            print(f"{kind.__name__}: left out, as transformers 5 has no pipeline that answers questions")
            continue
        model = kind(BertConfig(**shape, **more)).eval()
        saved, anew = folder / kind.__name__, folder / f"{kind.__name__}-anew"
        model.save_pretrained(saved)
        tokenizer.save_pretrained(saved)
        n = check(model, tokenizer, saved)
        subprocess.run(
            [program, "convert", "--model", saved, "--out", anew, "--max-shard-size", "20KB"],
            check=True, capture_output=True)
        shards = sorted(path.name for path in anew.glob("model-*.safetensors"))
        assert len(shards) > 1 and shards[0] == f"model-00001-of-{len(shards):05}.safetensors", shards
        again, loading = kind.from_pretrained(anew, output_loading_info=True)
        for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
            assert not loading[key], f"{kind.__name__}: {key}: {loading[key]}"
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, again.state_dict()[name]), name
        assert check(again.eval(), tokenizer, anew) > 0
        print(f"{kind.__name__}: {n} {check.__name__} agree; {len(shards)} shards load")
