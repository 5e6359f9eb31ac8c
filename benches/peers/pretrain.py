"""A pretraining step in PyTorch, as `cargo xtask bench train` runs it beside ours.

    python benches/peers/pretrain.py transformers|tuned PRESET BATCH LEN VOCAB STEPS f32|bf16

`transformers` is what its users run: BertForPreTraining, logits at every position, fused AdamW, clipping.
`tuned` is the best we know how to write by hand: one product for query, key and value, fused attention,
the vocabulary projection at masked positions only, torch.compile. `bf16` is under autocast.

Prints one JSON line with the median and the process's peak memory. Threads are torch's default; set
OMP_NUM_THREADS to choose. Under `torchrun` the processes share the batch (DistributedDataParallel with gloo), and the
first one prints.
"""

import contextlib
import json
import os
import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

peer, preset, batch, length, vocab, steps, precision = sys.argv[1:]
batch, length, vocab, steps = int(batch), int(length), int(vocab), int(steps)
ranks = int(os.environ.get("WORLD_SIZE", 1))
if ranks > 1:
    torch.distributed.init_process_group("gloo")
    batch //= ranks
layers, width = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512),
                 "base": (12, 768), "large": (24, 1024)}[preset]
heads = max(width // 64, 1)
torch.manual_seed(0)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x):
        q, k, v = self.qkv(x).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
        context = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1).transpose(1, 2).reshape(x.shape)
        x = self.norm1(x + F.dropout(self.out(context), 0.1))
        return self.norm2(x + F.dropout(self.down(F.gelu(self.up(x))), 0.1))


class Tuned(nn.Module):
    """BERT with its two pretraining heads."""

    def __init__(self):
        super().__init__()
        self.word, self.position = nn.Embedding(vocab, width), nn.Embedding(512, width)
        self.segment, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList([Layer() for _ in range(layers)])
        self.pooler, self.next = nn.Linear(width, width), nn.Linear(width, 2)
        self.transform, self.transform_norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, ids, segments, masked, labels, pairs):
        x = self.word(ids) + self.segment(segments) + self.position.weight[:length]
        x = F.dropout(self.norm(x), 0.1)
        for layer in self.layers:
            x = layer(x)
        states = self.transform_norm(F.gelu(self.transform(x.view(-1, width)[masked])))
        logits = F.linear(states, self.word.weight, self.bias)
        pair_logits = self.next(torch.tanh(self.pooler(x[:, 0])))
        return F.cross_entropy(logits, labels) + F.cross_entropy(pair_logits, pairs)


ids = torch.randint(5, vocab, (batch, length))
n_masked = batch * length * 15 // 100
masked = torch.arange(n_masked) * (batch * length) // n_masked
segments = (torch.arange(length) >= length // 2).long().expand(batch, length).contiguous()
pairs = torch.arange(batch) % 2

if peer == "transformers":
    from transformers import BertConfig, BertForPreTraining

    model = BertForPreTraining(BertConfig(
        vocab_size=vocab, num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads,
        intermediate_size=4 * width)).train()
    labels = torch.full_like(ids, -100)
    labels.view(-1)[masked] = ids.view(-1)[masked]

    def forward():
        return model(input_ids=ids, attention_mask=torch.ones_like(ids), token_type_ids=segments,
                     labels=labels, next_sentence_label=pairs).loss
else:
    model = Tuned().train()
    compiled = torch.compile(model)
    labels = ids.view(-1)[masked]

    def forward():
        return compiled(ids, segments, masked, labels, pairs)

if ranks > 1:
    model = compiled = nn.parallel.DistributedDataParallel(model)

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=True)
mixed = torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
times = []
for step in range(steps + 2):
    start = time.perf_counter()
    with mixed:
        loss = forward()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step >= 2:
        times.append((time.perf_counter() - start) * 1e3)
median = statistics.median(times)
if ranks == 1 or torch.distributed.get_rank() == 0:
    print(json.dumps({"ms": round(median, 2), "per_s": round(ranks * batch * length / median * 1e3, 1),
                      "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
                      "loss": loss.item()}))
