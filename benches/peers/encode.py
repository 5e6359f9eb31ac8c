"""Lines to ids with the tokenizers package, as `cargo xtask bench whole` runs it beside ours.

    python benches/peers/encode.py TOKENIZER FILE ROUNDS

TOKENIZER is a folder with vocab.json and merges.txt, or with a cased vocab.txt. Only `encode_batch` is timed, on the
lines of FILE, which are in memory. Prints one JSON line with the median. Threads: RAYON_NUM_THREADS, and
TOKENIZERS_PARALLELISM=false for one.
"""

import json
import os
import statistics
import sys
import time

from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer

folder, file, rounds = sys.argv[1:]
merges = os.path.join(folder, "merges.txt")
if os.path.exists(merges):
    tokenizer = ByteLevelBPETokenizer(os.path.join(folder, "vocab.json"), merges)
else:
    tokenizer = BertWordPieceTokenizer(os.path.join(folder, "vocab.txt"), lowercase=False, strip_accents=False)
with open(file, encoding="utf-8", newline="\n") as lines:
    lines = [line.rstrip("\n") for line in lines]
times = []
for _ in range(int(rounds)):
    start = time.perf_counter()
    encodings = tokenizer.encode_batch(lines)
    times.append(time.perf_counter() - start)
    del encodings
print(json.dumps({"ms": round(statistics.median(times) * 1e3, 3)}))
