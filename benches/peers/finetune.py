"""A fine-tuning run of transformers' Trainer, as one of our configs describes it.

    python benches/peers/finetune.py CONFIG SEED

Texts and pairs, classes and numbers: what `[data]`, `[train]`, `[optimizer]` and `[schedule]` say, grouped by
length. Run it from the repository's root, as the config's paths are. Prints one JSON line: seconds of training
and scikit-learn's and scipy's figures of the best epoch on the development data.

    pip install torch==2.9.0 transformers==4.57.6 accelerate scikit-learn scipy
"""

import csv
import json
import sys
import time
import tomllib

import numpy as np
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import (AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer,
                          TrainingArguments)

config_path, seed = sys.argv[1], int(sys.argv[2])
with open(config_path, "rb") as file:
    config = tomllib.load(file)
task, source, data = config["task"]["kind"], config["data"]["train"], config["data"]
columns = {"text": "text", "label": "label"} | source["columns"]


def read(paths):
    rows = []
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            lines = csv.reader(file, delimiter=source.get("delimiter", "\t"), quoting=csv.QUOTE_NONE)
            if "n_columns" in source:
                n, mark = source["n_columns"], source.get("delimiter", "\t")
                lines = (line.rstrip("\n").split(mark, n - 1) for line in open(path, encoding="utf-8"))
            header = next(lines) if source.get("header", True) else None
            place = {field: header.index(c) if isinstance(c, str) else c - 1 for field, c in columns.items()}
            for line in lines:
                row = {field: line[i].strip() for field, i in place.items()}
                if "label_before" in source:
                    row["label"] = row["label"].split(source["label_before"])[0]
                if task == "regression":
                    try:
                        row["label"] = float(row["label"])
                    except ValueError:
                        continue
                rows.append(row)
    return rows


train, dev = read(source["files"]), read(data.get("dev") or data["test"])
names = sorted({row["label"] for row in train}) if task == "classification" else None
tokenizer = AutoTokenizer.from_pretrained(config["model"]["path"])


def encode(rows):
    pairs = [row["pair"] for row in rows] if "pair" in columns else None
    encoded = tokenizer([row["text"] for row in rows], pairs, truncation=True, max_length=data["max_len"])
    labels = [names.index(row["label"]) if names else row["label"] for row in rows]
    return [{"input_ids": i, "attention_mask": m, "token_type_ids": t, "label": label} for i, m, t, label in
            zip(encoded["input_ids"], encoded["attention_mask"], encoded["token_type_ids"], labels)]


def figures(prediction):
    logits, gold = prediction
    if not names:
        values = logits.reshape(-1)
        return {"pearson": pearsonr(gold, values).statistic, "spearman": spearmanr(gold, values).statistic}
    found = logits.argmax(-1)
    result = {"accuracy": accuracy_score(gold, found), "matthews": matthews_corrcoef(gold, found)}
    if len(names) == 2:
        result["f1"] = f1_score(gold, found)
    return result


torch.manual_seed(seed)
model = AutoModelForSequenceClassification.from_pretrained(config["model"]["path"],
                                                           num_labels=len(names) if names else 1)
optimizer = config["optimizer"]
trainer = Trainer(
    model,
    TrainingArguments(
        output_dir="/tmp/cloze-peer", seed=seed, num_train_epochs=config["train"]["epochs"],
        per_device_train_batch_size=config["train"]["batch_size"], per_device_eval_batch_size=64,
        learning_rate=optimizer["lr"], weight_decay=optimizer.get("weight_decay", 0.01), adam_epsilon=1e-6,
        warmup_steps=config["schedule"].get("warmup_steps", 0), group_by_length=True, eval_strategy="epoch",
        save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no", use_cpu=True),
    train_dataset=encode(train), eval_dataset=encode(dev), data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=figures)
start = time.time()
trainer.train()
seconds = time.time() - start
main = config.get("eval", {}).get("metric", "accuracy" if names else "pearson")
epochs = [entry for entry in trainer.state.log_history if f"eval_{main}" in entry]
best = max(epochs, key=lambda entry: entry[f"eval_{main}"])
shown = {key.removeprefix("eval_"): float(np.round(value, 6)) for key, value in best.items()
         if key.startswith("eval_") and key not in ("eval_runtime", "eval_samples_per_second",
                                                    "eval_steps_per_second")}
print(json.dumps({"seconds": round(seconds, 1), "figures": shown}))
