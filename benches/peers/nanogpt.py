"""nanoGPT's configuration for a CPU (karpathy/nanoGPT, README: "I only have a macbook"), in plain PyTorch.

    python benches/peers/nanogpt.py TEXT [--steps N] [--seed N]

A left-to-right model of the characters of TEXT: 4 layers, 4 heads, width 128, context 64, batches of 12, 2,000 steps,
no dropout, no biases, learned positions, GELU; AdamW with a cosine from 1e-3 to 1e-4 after 100 steps of warm-up, decay
0.1 of matrices, betas 0.9 and 0.99, norms clipped at 1. The last tenth of the text is held out.

Prints one JSON line: the seconds of the steps, tokens a second, and the held-out loss in nats a character, over all of
the held-out text in windows of the context. Evaluations are not in the seconds.
"""

import argparse
import json
import math
import os
import resource
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 12
PEAK, LEAST, WARMUP = 1e-3, 1e-4, 100

parser = argparse.ArgumentParser()
parser.add_argument("text")
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--seed", type=int, default=1337)
args = parser.parse_args()
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
torch.manual_seed(args.seed)


class Norm(nn.Module):
    """Layer normalisation without a bias."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return F.layer_norm(x, (WIDTH,), self.weight, None, 1e-5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(WIDTH, 2))
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(context)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab_size, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.norm = nn.Sequential(*[Block() for _ in range(LAYERS)]), Norm()
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS) if last else 0.02)

    def forward(self, ids, labels, reduction="mean"):
        x = self.blocks(self.token(ids) + self.position.weight[:ids.shape[1]])
        logits = F.linear(self.norm(x), self.token.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction=reduction)


with open(args.text, encoding="utf-8") as file:
    text = file.read()
characters = {character: i for i, character in enumerate(sorted(set(text)))}
ids = torch.tensor([characters[character] for character in text])
train, held_out = ids[:int(0.9 * len(ids))], ids[int(0.9 * len(ids)):]
model = Gpt(len(characters))
groups = [{"params": [p for p in model.parameters() if (p.dim() >= 2) == matrices], "weight_decay": decay}
          for matrices, decay in ((True, 0.1), (False, 0.0))]
optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.99), fused=True)
seconds = 0.0
model.train()
for step in range(args.steps):
    begin = time.perf_counter()
    done = min(max(step - WARMUP, 0) / max(args.steps - WARMUP, 1), 1.0)
    rate = PEAK * (step + 1) / (WARMUP + 1) if step < WARMUP else \
        LEAST + (PEAK - LEAST) * (1 + math.cos(math.pi * done)) / 2
    for group in optimizer.param_groups:
        group["lr"] = rate
    starts = torch.randint(len(train) - CONTEXT, (BATCH,))
    windows = torch.stack([train[start:start + CONTEXT + 1] for start in starts])
    optimizer.zero_grad()
    loss = model(windows[:, :-1], windows[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    seconds += time.perf_counter() - begin
model.eval()
with torch.no_grad():
    n = (len(held_out) - 1) // CONTEXT * CONTEXT
    inputs, labels = held_out[:n].view(-1, CONTEXT), held_out[1:n + 1].view(-1, CONTEXT)
    total = sum(model(x, y, "sum").item() for x, y in zip(inputs.split(256), labels.split(256)))
print(json.dumps({"seconds": round(seconds, 3), "ms": round(seconds / args.steps * 1e3, 3),
                  "per_s": round(BATCH * CONTEXT * args.steps / seconds, 1), "steps": args.steps,
                  "held_out_loss": round(total / n, 4),
                  "parameters": sum(parameter.numel() for parameter in model.parameters()),
                  "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1)}))
