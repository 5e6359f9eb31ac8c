"""Steps of a GPT-2 on the words of a text in plain PyTorch, with a softmax over all words or an adaptive one.

    python benches/peers/vocabulary.py whole|adaptive STEPS PATTERN...

The words and punctuation marks of the files, up to 100,000 in order of frequency; 4 layers, 4 heads, width 256, blocks of
128 tokens in batches of 32 from random places, no dropout, learned positions, AdamW, norms clipped at 1, as
`configs/gpt-mini-corpus.toml` has them. `whole` ties the output to the embeddings; `adaptive` is
`AdaptiveLogSoftmaxWithLoss` with the cutoffs 2,000 and 20,000.

Prints one JSON line: the median time of a step after three that do not count, tokens a second, and the peak memory.
"""

import collections
import glob
import json
import os
import re
import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, WIDTH, CONTEXT, BATCH, WORDS, BEFORE = 4, 4, 256, 128, 32, 100_000, 3

kind, steps, patterns = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
torch.manual_seed(1)

words = []
for path in sorted(path for pattern in patterns for path in glob.glob(pattern)):
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            words += re.findall(r"\w+|[^\w\s]+", line)
# Two special pieces come first.
ids = {word: number + 2 for number, (word, _) in enumerate(collections.Counter(words).most_common(WORDS - 2))}
vocab, stream = len(ids) + 2, torch.tensor([ids.get(word, 0) for word in words])
del words


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(WIDTH, 2))
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(context)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)
        self.adaptive = None
        if kind == "adaptive":
            self.adaptive = nn.AdaptiveLogSoftmaxWithLoss(WIDTH, vocab, [2_000, 20_000])

    def forward(self, x, y):
        states = self.norm(self.blocks(self.tokens(x) + self.positions.weight)).flatten(0, 1)
        if self.adaptive is not None:
            return self.adaptive(states, y.flatten()).loss
        return F.cross_entropy(states @ self.tokens.weight.T, y.flatten())


model = Gpt()
nn.init.normal_(model.tokens.weight, std=0.04)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.1)
times = []
for step in range(BEFORE + steps):
    starts = torch.randint(len(stream) - CONTEXT - 1, (BATCH,)).tolist()
    x, y = (torch.stack([stream[start + shift : start + shift + CONTEXT] for start in starts]) for shift in (0, 1))
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    model(x, y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    times.append(time.perf_counter() - start)
seconds = statistics.median(times[BEFORE:])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"ms": 1e3 * seconds, "per_s": BATCH * CONTEXT / seconds, "peak_mb": peak}))
