"""Captum's explanations of a classifier, as `cargo xtask bench inspect` runs them beside ours.

    python benches/peers/explain.py METHOD MODEL TEXTS ROUNDS

METHOD is `gradient × input`, `integrated gradients` (50 points, Gauss–Legendre, from `[MASK]` with the special tokens kept) or
`occlusion` (of one token at a time). Explains the lines of the file TEXTS one after the other, as Captum's tutorials do. Prints one
JSON line with the median and the process's peak memory. Threads: OMP_NUM_THREADS, 2 unless set.
"""

import json
import os
import resource
import statistics
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")

import torch
from captum.attr import FeatureAblation, InputXGradient, IntegratedGradients
from transformers import AutoModelForSequenceClassification, AutoTokenizer

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
method, folder, file, rounds = sys.argv[1:]
texts = open(file, encoding="utf-8").read().splitlines()
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
embeddings = model.get_input_embeddings()


def score(vectors):
    return model(inputs_embeds=vectors).logits


def score_ids(ids):
    return model(input_ids=ids).logits


def explain(text):
    ids = tokenizer(text, truncation=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        target = model(input_ids=ids).logits.argmax(-1).item()
    special = torch.tensor(tokenizer.get_special_tokens_mask(ids[0].tolist(), already_has_special_tokens=True))
    masked = torch.where(special.bool(), ids, tokenizer.mask_token_id)
    if method == "occlusion":
        FeatureAblation(score_ids).attribute(ids, baselines=masked, target=target, perturbations_per_eval=16)
        return
    vectors = embeddings(ids).detach()
    if method == "integrated gradients":
        IntegratedGradients(score).attribute(
            vectors, baselines=embeddings(masked).detach(), target=target, n_steps=50, method="gausslegendre",
            internal_batch_size=50).sum(-1)
    else:
        InputXGradient(score).attribute(vectors.requires_grad_(), target=target).sum(-1)


def all_texts():
    for text in texts:
        explain(text)


all_texts()
times = []
for _ in range(int(rounds)):
    start = time.perf_counter()
    all_texts()
    times.append(time.perf_counter() - start)
median = statistics.median(times)
print(json.dumps({"ms": round(1e3 * median / len(texts), 3), "per_s": round(len(texts) / median, 3),
                  "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1)}))
