"""Sentence embeddings in PyTorch or ONNX Runtime, as `cargo xtask bench infer` runs them beside ours.

    python benches/peers/embed.py transformers MODEL SENTENCES ROUNDS f32|bf16
    python benches/peers/embed.py onnx MODEL SENTENCES ROUNDS int8
    python benches/peers/embed.py latency MODEL TOKENS ROUNDS f32|bf16

The first two embed the lines of the file SENTENCES as sentence-transformers does: sorted by length,
batches of 32 padded to their longest, mean pooling, normalised. `onnx` exports the model and quantises it
dynamically. `latency` is one forward pass over TOKENS tokens. In `bf16` PyTorch has two ways, weights of bf16 and
autocast; the one that is faster at a tenth of the work does it.

Prints one JSON line with the median and the process's peak memory. Threads: OMP_NUM_THREADS, 2 unless set.
"""

import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")
threads = int(os.environ["OMP_NUM_THREADS"])

import torch
from transformers import AutoModel, AutoTokenizer

torch.set_num_threads(threads)
peer, folder, what, rounds, precision = sys.argv[1:]
rounds = int(rounds)
model = AutoModel.from_pretrained(folder).eval()
mixed = contextlib.nullcontext


def report(times, units):
    median = statistics.median(times)
    print(json.dumps({"ms": round(median * 1e3, 3), "per_s": round(units / median, 1),
                      "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1)}))
    sys.exit()


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


def choose_bf16(work):
    """Leaves `model` and `mixed` as the faster of the two ways has them; `work` is done twice in each."""
    global model, mixed
    plain = model
    ways = [(AutoModel.from_pretrained(folder).to(torch.bfloat16).eval(), contextlib.nullcontext), (plain, autocast)]
    times = []
    for model, mixed in ways:
        work()
        times.append(timed(work))
    model, mixed = ways[times.index(min(times))]


if peer == "latency":
    ids = torch.arange(1000, 1000 + int(what)).unsqueeze(0)

    def passes(count):
        with torch.inference_mode(), mixed():
            return [timed(lambda: model(input_ids=ids)) for _ in range(count)]

    if precision == "bf16":
        choose_bf16(lambda: passes(max(rounds // 10, 1)))
    passes(10)
    report(passes(rounds), 1)

sentences = open(what, encoding="utf-8").read().splitlines()
tokenizer = AutoTokenizer.from_pretrained(folder)
if peer == "onnx":
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    scratch = tempfile.mkdtemp()
    example = dict(tokenizer(["an example"], return_tensors="pt"))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(
        model, tuple(example[name] for name in names), f"{scratch}/f32.onnx", input_names=names,
        output_names=["states"], dynamic_axes={name: {0: "batch", 1: "length"} for name in names},
        opset_version=14, dynamo=False)
    quantize_dynamic(f"{scratch}/f32.onnx", f"{scratch}/int8.onnx", weight_type=QuantType.QInt8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        f"{scratch}/int8.onnx", options, providers=["CPUExecutionProvider"])

    def states(batch):
        return torch.from_numpy(session.run(["states"], {name: batch[name].numpy() for name in names})[0])
else:
    def states(batch):
        return model(**batch).last_hidden_state


def embed(sentences=sentences):
    order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    with torch.inference_mode(), mixed():
        for start in range(0, len(order), 32):
            texts = [sentences[i] for i in order[start:start + 32]]
            batch = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
            hidden, mask = states(batch).float(), batch["attention_mask"].unsqueeze(-1).float()
            torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)


if precision == "bf16":
    choose_bf16(lambda: embed(sentences[::10]))
embed()
report([timed(embed) for _ in range(rounds)], len(sentences))
