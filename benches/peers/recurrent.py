"""A recurrent layer in PyTorch, forward and backward: the work of `crates/ops/benches/recurrent.rs`.

    python benches/peers/recurrent.py [ROUNDS]

64 packed sequences of 10 to 29 tokens through torch.nn.LSTM and torch.nn.GRU of one layer and one direction. Prints
tokens a second, the best of the rounds. Threads: OMP_NUM_THREADS, else all cores.
"""

import sys
import time

import torch

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
lengths = [10 + i * 7 % 20 for i in range(64)]
torch.manual_seed(0)
for d in [128, 256, 512, 1024]:
    for kind in [torch.nn.LSTM, torch.nn.GRU]:
        module = kind(d, d)
        x = torch.rand(sum(lengths), d, requires_grad=True)
        best = float("inf")
        for round in range(rounds + 1):
            start = time.perf_counter()
            packed = torch.nn.utils.rnn.pack_sequence(list(x.split(lengths)), enforce_sorted=False)
            module.zero_grad()
            x.grad = None
            module(packed)[0].data.sum().backward()
            # The first round warms up.
            best = min(best, time.perf_counter() - start) if round else best
        print(f"{kind.__name__.lower():5} d = {d:4}, f32: {sum(lengths) / best:9.0f} tokens/s")
