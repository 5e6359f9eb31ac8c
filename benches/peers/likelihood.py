"""Scores of sentences by minicons, as `cargo xtask bench likelihood` runs it beside ours.

    python benches/peers/likelihood.py masked|left-to-right MODEL SENTENCES pll|word-l2r

Scores the lines of the file SENTENCES, sorted by length as ours are, in batches of the size among 1, 8 and 32 that is fastest at
a tenth of them. Prints one JSON line with the sums over the pieces in the lines' order, the seconds of scoring alone, and the
version. Threads: OMP_NUM_THREADS, 2 unless set.
"""

import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")

import minicons
import torch
from minicons import scorer
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
kind, folder, path, metric = sys.argv[1:]
lines = open(path, encoding="utf-8").read().splitlines()
tokenizer = AutoTokenizer.from_pretrained(folder)
if kind == "masked":
    by = scorer.MaskedLMScorer(AutoModelForMaskedLM.from_pretrained(folder), "cpu", tokenizer=tokenizer)
    options = {"PLL_metric": {"pll": "original", "word-l2r": "within_word_l2r"}[metric]}
else:
    by = scorer.IncrementalLMScorer(AutoModelForCausalLM.from_pretrained(folder), "cpu", tokenizer=tokenizer)
    options = {"bos_token": tokenizer.bos_token is not None}
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token


def score(order, size):
    sums = {}
    for start in range(0, len(order), size):
        part = order[start:start + size]
        found = by.sequence_score([lines[at] for at in part], reduction=lambda scores: scores.sum().item(), **options)
        sums.update(zip(part, found))
    return sums


def seconds(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


order = sorted(range(len(lines)), key=lambda at: len(lines[at]))
some = order[::10] or order
score(some[:4], 4)
size = min((1, 8, 32), key=lambda size: seconds(lambda: score(some, size))[0])
taken, sums = seconds(lambda: score(order, size))
print(json.dumps({"seconds": round(taken, 3), "batch": size, "version": minicons.__version__,
                  "sums": [round(sums[at], 6) for at in range(len(lines))]}))
