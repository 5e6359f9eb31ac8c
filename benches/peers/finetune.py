"""A fine-tuning run of transformers' Trainer, as one of our configs describes it.

    python benches/peers/finetune.py CONFIG SEED [--set KEY=VALUE …] [--held-out FILE] [--prune HEADS,NEURONS]

Texts and pairs, classes and numbers, tags of words, answers: what `[task]`, `[data]`, `[train]`, `[optimizer]` and
`[schedule]` say, grouped by length. Run it from the repository's root, as the config's paths are. Where a config
holds out a share of its training data, FILE is a JSON list of the rows held out, from 0, as our side writes it.

With `--prune`, TextPruner first takes out what is less important, in ten rounds on 1,024 training examples, so that layers have
these numbers of heads and neurons on average (`pip install textpruner`).

Measures on the development data after every epoch and reports the best epoch by the main figure; without
development data, on the test data after the last. Prints one JSON line with these figures, by scikit-learn, scipy,
seqeval and SQuAD's script, and the seconds of the epochs' steps: without reading, tokenizing and evaluations.

    pip install torch==2.9.0 transformers==4.57.6 accelerate scikit-learn scipy seqeval
"""

import argparse
import json
import os
import tempfile
import time

import answers
import labelled
import numpy as np
import settings
import torch
from scipy.stats import pearsonr, spearmanr
from seqeval.metrics import f1_score as entity_f1
from seqeval.metrics import precision_score as entity_precision
from seqeval.metrics import recall_score as entity_recall
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from torch.utils.data import SequentialSampler
from transformers import (AutoModelForQuestionAnswering, AutoModelForSequenceClassification,
                          AutoModelForTokenClassification, AutoTokenizer, DataCollatorForTokenClassification,
                          DataCollatorWithPadding, Trainer, TrainerCallback, TrainingArguments)

parser = argparse.ArgumentParser()
parser.add_argument("config")
parser.add_argument("seed", type=int)
parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
parser.add_argument("--held-out", metavar="FILE")
parser.add_argument("--prune", metavar="HEADS,NEURONS")
parser.add_argument("--max-steps", type=int, default=-1, help="end after so many steps, to try")
args = parser.parse_args()

config = settings.read(args.config, args.set)

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
torch.manual_seed(args.seed)
section, data, path = config["task"], config["data"], config["model"]["path"]
task, max_len = section["kind"], data.get("max_len", 128)
tokenizer = AutoTokenizer.from_pretrained(path)
read = {
    "classification": lambda paths: labelled.rows(paths, data["train"], task),
    "regression": lambda paths: labelled.rows(paths, data["train"], task),
    "tagging": labelled.sentences,
    "answers": labelled.questions,
}.get(task)
if read is None:
    raise SystemExit(f"{args.config}: the peer has no task {task}")

# Which rows are trained on, and which are measured with.
train = read(data["train"]["files"])
split, last_epoch_only = "dev", False
if "dev_fraction" in data:
    if args.held_out is None:
        raise SystemExit(f"{args.config}: holds rows out; --held-out says which")
    with open(args.held_out, encoding="utf-8") as file:
        held = set(json.load(file))
    train, measured = ([row for i, row in enumerate(train) if (i in held) == out] for out in (False, True))
elif data.get("dev"):
    measured = read(data["dev"])
elif data.get("test"):
    split, last_epoch_only, measured = "test", True, read(data["test"])
else:
    split, measured = None, []


def encode(tokens, label):
    return {key: tokens[key] for key in ("input_ids", "attention_mask", "token_type_ids")} | {"labels": label}


def encode_texts(rows):
    for row in rows:
        tokens = tokenizer(row["text"], row.get("pair"), truncation=True, max_length=max_len)
        yield encode(tokens, names.index(row["label"]) if names else row["label"])


def encode_words(rows):
    """A word's first piece carries its tag; the others carry none."""
    for words, tags in rows:
        tokens = tokenizer(words, is_split_into_words=True, truncation=True, max_length=max_len)
        places = tokens.word_ids()
        first = [place is not None and place not in places[:i] for i, place in enumerate(places)]
        yield encode(tokens, [names.index(tags[w]) if f else -100 for w, f in zip(places, first)]) | {
            "words": [place for place, f in zip(places, first) if f]}


def text_figures(prediction):
    logits, gold = prediction
    if not names:
        values = logits.reshape(-1)
        return {"pearson": pearsonr(gold, values).statistic, "spearman": spearmanr(gold, values).statistic}
    found = logits.argmax(-1)
    figures = {"accuracy": accuracy_score(gold, found), "matthews": matthews_corrcoef(gold, found)}
    return figures | ({"f1": f1_score(gold, found)} if len(names) == 2 else {})


def tag_figures(prediction):
    """Words that were cut off or have no pieces are outside, as on our side."""
    logits, labels = prediction
    found = [["O"] * len(words) for words, _ in measured]
    for sentence, (scores, gold) in enumerate(zip(logits, labels)):
        for word, label in zip(measured_words[sentence], scores[gold != -100].argmax(-1)):
            found[sentence][word] = names[label]
    gold = [tags for _, tags in measured]
    return {"f1": entity_f1(gold, found), "precision": entity_precision(gold, found),
            "recall": entity_recall(gold, found)}


def answer_figures(prediction):
    (starts, ends), _ = prediction
    found = answers.best_answers(measured, measured_windows, starts, ends, section.get("n_best", 20),
                                 section.get("max_answer", 30))
    return answers.scores(measured, found)


names, collate, main = None, DataCollatorWithPadding(tokenizer), None
if task == "answers":
    model = AutoModelForQuestionAnswering.from_pretrained(path)
    stride = section.get("stride", 128)
    train_set = [window["inputs"] for window in answers.windows(tokenizer, train, max_len, stride)]
    measured_windows = answers.windows(tokenizer, measured, max_len, stride) if measured else []
    measured_set, figures, main = [window["inputs"] for window in measured_windows], answer_figures, "f1"
elif task == "tagging":
    names = ["O", *sorted({tag for _, tags in train for tag in tags} - {"O"})]
    model = AutoModelForTokenClassification.from_pretrained(path, num_labels=len(names))
    collate = DataCollatorForTokenClassification(tokenizer)
    train_set, measured_set, figures, main = [*encode_words(train)], [*encode_words(measured)], tag_figures, "f1"
    measured_words = [row.pop("words") for row in measured_set]
    for row in train_set:
        row.pop("words")
else:
    names = sorted({row["label"] for row in train}) if task == "classification" else None
    model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=len(names) if names else 1)
    train_set, measured_set, figures = [*encode_texts(train)], [*encode_texts(measured)], text_figures
    main = "accuracy" if names else "pearson"
main = config.get("eval", {}).get("metric", main)

if args.prune:
    from textpruner import GeneralConfig, TransformerPruner, TransformerPruningConfig
    from torch.utils.data import DataLoader

    heads, neurons = map(int, args.prune.split(","))
    pruner = TransformerPruner(
        model,
        TransformerPruningConfig(target_num_of_heads=heads, target_ffn_size=neurons, pruning_method="iterative",
                                 n_iters=10, head_even_masking=False),
        GeneralConfig(use_device="cpu"))
    pruner.prune(DataLoader(train_set[:1024], batch_size=32, collate_fn=collate), adaptor=lambda outputs: outputs.loss,
                 save_model=False)


class Seconds(TrainerCallback):
    """The time of the epochs, which evaluations come after."""

    def __init__(self):
        self.total = 0.0

    def on_epoch_begin(self, *_, **__):
        self.start = time.perf_counter()

    def on_epoch_end(self, *_, **__):
        self.total += time.perf_counter() - self.start


class InOrder(Trainer):
    """Evaluates in the data's order, which tags and answers are put together by: Trainer groups there too."""

    def _get_eval_sampler(self, eval_dataset):
        return SequentialSampler(eval_dataset)


optimizer, schedule = config["optimizer"], config["schedule"]
if schedule["kind"] != "linear" or schedule.get("final_fraction", 0.0) != 0.0:
    raise SystemExit(f"{args.config}: the peer's schedule is linear, to 0")
seconds = Seconds()
with tempfile.TemporaryDirectory() as folder:
    trainer = InOrder(
        model,
        TrainingArguments(
            output_dir=folder, seed=args.seed, num_train_epochs=config["train"]["epochs"], max_steps=args.max_steps,
            per_device_train_batch_size=config["train"]["batch_size"], per_device_eval_batch_size=64,
            learning_rate=optimizer["lr"], weight_decay=optimizer.get("weight_decay", 0.01),
            adam_beta1=optimizer.get("beta1", 0.9), adam_beta2=optimizer.get("beta2", 0.999),
            adam_epsilon=optimizer.get("eps", 1e-6), max_grad_norm=optimizer.get("clip_norm", 1.0),
            lr_scheduler_type="linear", warmup_steps=schedule.get("warmup_steps", 0),
            warmup_ratio=schedule.get("warmup_fraction", 0.0), group_by_length=True,
            eval_strategy="epoch" if measured and not last_epoch_only else "no", save_strategy="no", report_to=[],
            disable_tqdm=True, logging_strategy="no", use_cpu=True,
            bf16=config["train"].get("precision") == "bf16"),
        train_dataset=train_set, eval_dataset=measured_set, data_collator=collate, compute_metrics=figures,
        callbacks=[seconds])
    trainer.train()
    if last_epoch_only:
        trainer.evaluate()

history = [{key.removeprefix("eval_"): round(float(value), 6) for key, value in entry.items()
            if key.startswith("eval_") and key not in ("eval_loss", "eval_runtime", "eval_samples_per_second",
                                                       "eval_steps_per_second")}
           for entry in trainer.state.log_history if f"eval_{main}" in entry]
best = max(history, key=lambda entry: entry[main]) if history else {}
print(json.dumps({"seconds": round(seconds.total, 3), "epochs": config["train"]["epochs"],
                  "train_examples": len(train), "split": split, "examples": len(measured), "main": main,
                  "figures": best, "history": history}))
