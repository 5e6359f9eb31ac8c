"""Scaled dot-product attention in PyTorch, forward and backward, as `cargo xtask bench attention` runs it beside ours.

    python benches/peers/attention.py LEN f32|bf16 ROUNDS

8,192 tokens in sequences of a length, 4 heads of 64 features, without dropout or mask: what PyTorch's fused kernel for
the CPU takes. Tensors are bf16 in bf16.

Prints one JSON line with the best round and by how many megabytes the process grew. Threads: OMP_NUM_THREADS, else all
cores.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS = 8192
length, precision, rounds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def memory(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024 / 1e6


def make():
    x = torch.rand(TOKENS // length, length, 4, 64) * 2 - 1
    return x.to(torch.bfloat16 if precision == "bf16" else torch.float32).requires_grad_()


def step(inputs, gradient):
    for x in inputs:
        x.grad = None
    start = time.perf_counter()
    # As a model has them: heads inside positions.
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        y = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in inputs))
    y.backward(gradient)
    return time.perf_counter() - start


torch.manual_seed(0)
open("/proc/self/clear_refs", "w").write("5")  # The peak so far is that of importing.
before = memory("VmRSS:")
inputs = [make() for _ in range(3)]
gradient = torch.ones(TOKENS // length, 4, length, 64, dtype=inputs[0].dtype)
# The first round warms up.
best = min([step(inputs, gradient) for _ in range(rounds + 1)][1:])
print(json.dumps({"ms": round(best * 1e3, 3), "per_s": round(TOKENS / best, 1),
                  "peak_mb": round(memory("VmHWM:") - before, 1)}))
