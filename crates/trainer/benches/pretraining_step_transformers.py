"""The step of pretraining_step.rs in PyTorch: transformers' BertForPreTraining, fused AdamW, clipping.

    python crates/trainer/benches/pretraining_step_transformers.py [PRESET] [BATCH] [LEN] [VOCAB] [STEPS]

Prints one JSON line with the median. To compare, run the two in turn, several times, and take the
medians: machines drift. Threads are torch's default; set OMP_NUM_THREADS to choose.
"""

import json
import statistics
import sys
import time

import torch
from transformers import BertConfig, BertForPreTraining

preset, batch, length, vocab, steps = (sys.argv[1:] + ["mini", "16", "128", "30522", "10"][len(sys.argv) - 1:])
batch, length, vocab, steps = int(batch), int(length), int(vocab), int(steps)
layers, width = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512),
                 "base": (12, 768), "large": (24, 1024)}[preset]
torch.manual_seed(0)
model = BertForPreTraining(BertConfig(
    vocab_size=vocab, num_hidden_layers=layers, hidden_size=width, num_attention_heads=width // 64,
    intermediate_size=4 * width)).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=True)
ids = torch.randint(5, vocab, (batch, length))
labels = torch.full_like(ids, -100)
n_masked = batch * length * 15 // 100
masked = torch.arange(n_masked) * (batch * length) // n_masked
labels.view(-1)[masked] = ids.view(-1)[masked]
segments = (torch.arange(length) >= length // 2).long().expand(batch, length)
pairs = torch.arange(batch) % 2

times = []
for step in range(steps + 2):
    start = time.perf_counter()
    loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), token_type_ids=segments,
                 labels=labels, next_sentence_label=pairs).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step >= 2:
        times.append((time.perf_counter() - start) * 1e3)
median = statistics.median(times)
print(json.dumps({"work": "pretraining step", "peer": "transformers", "model": preset, "batch": batch,
                  "len": length, "vocab": vocab, "ms": round(median, 1),
                  "tokens_per_s": round(batch * length / median * 1e3), "loss": loss.item()}))
