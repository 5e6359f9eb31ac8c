"""Figures of sentence-transformers, as `cargo xtask bench embeddings` compares them with ours.

    python benches/peers/embeddings.py MODEL FILE [TEXT PAIR LABEL]

FILE has tab-separated pairs with a score each: with the header's names of three columns, or without a header and with the
score first. Rows without a score are left out.

Prints one JSON line: the figures of EmbeddingSimilarityEvaluator on cosines, and seconds for loading the model and for all
of it. Threads: OMP_NUM_THREADS, 2 unless set.
"""

import importlib.metadata
import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")

start = time.perf_counter()

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
folder, path, *names = sys.argv[1:]
with open(path, encoding="utf-8") as file:
    rows = [line.rstrip("\r\n").split("\t") for line in file]
label, text, pair = 0, 1, 2
if names:
    text, pair, label = (rows[0].index(name) for name in names)
    rows = rows[1:]
rows = [row for row in rows if row[label]]
model = SentenceTransformer(folder, device="cpu")
loaded = time.perf_counter() - start
evaluator = EmbeddingSimilarityEvaluator(
    [row[text] for row in rows], [row[pair] for row in rows], [float(row[label]) for row in rows],
    main_similarity="cosine", similarity_fn_names=["cosine"], write_csv=False)
figures = evaluator(model)
print(json.dumps({"examples": len(rows), "figures": {name: float(value) for name, value in figures.items()},
                  "load_s": round(loaded, 3), "all_s": round(time.perf_counter() - start, 3),
                  "version": importlib.metadata.version("sentence-transformers")}))
