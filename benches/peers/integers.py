"""Sentence embeddings from files of integers, as `cargo xtask bench compress --speed` runs them beside ours.

    python benches/peers/integers.py onnxruntime|openvino FILE TOKENIZER SENTENCES ROUNDS
    python benches/peers/integers.py llama.cpp FILE - SENTENCES ROUNDS

Embeds the lines of the file SENTENCES as sentence-transformers does: sorted by length, batches of 32 padded to their longest,
mean pooling, normalised. FILE is an ONNX graph or a GGUF file that `cloze export` wrote; llama.cpp tokenizes by itself.
`onnxruntime` with `dynamic:FILE` quantises the graph dynamically first.

Prints one JSON line with the median and the process's peak memory. Threads: OMP_NUM_THREADS, 2 unless set.
"""

import json
import os
import resource
import statistics
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")
threads = int(os.environ["OMP_NUM_THREADS"])

import numpy as np

program, file, tokenizer_file, what, rounds = sys.argv[1:]
sentences = open(what, encoding="utf-8").read().splitlines()


def by_length(states):
    """Embeds all sentences, given the states of a batch of ids."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_file)
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def embed():
        order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
        for start in range(0, len(order), 32):
            batch = tokenizer.encode_batch([sentences[i] for i in order[start:start + 32]])
            ids = np.array([one.ids for one in batch], dtype=np.int64)
            mask = np.array([one.attention_mask for one in batch], dtype=np.int64)
            hidden = states({"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
            weights = mask[:, :, None].astype(np.float32)
            vectors = (hidden * weights).sum(1) / weights.sum(1)
            vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return embed


if program == "onnxruntime":
    import onnxruntime

    if file.startswith("dynamic:"):
        from onnxruntime.quantization import QuantType, quantize_dynamic

        scratch = tempfile.mkdtemp() + "/int8.onnx"
        quantize_dynamic(file.removeprefix("dynamic:"), scratch, weight_type=QuantType.QInt8)
        file = scratch
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = {given.name for given in session.get_inputs()}
    output = next(given.name for given in session.get_outputs() if len(given.shape) == 3)
    embed = by_length(
        lambda batch: session.run([output], {name: batch[name] for name in names})[0])
elif program == "openvino":
    import openvino

    core = openvino.Core()
    model = core.compile_model(file, "CPU", {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"})
    names = {next(iter(given.names)) for given in model.inputs}
    output = next(given for given in model.outputs if len(given.partial_shape) == 3)
    embed = by_length(lambda batch: model({name: batch[name] for name in names})[output])
else:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.embedding, params.verbosity = file, True, -1
    params.n_ctx = params.n_batch = params.n_ubatch = 4096
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)

    def embed():
        # Four thousand tokens at a time, as llama.cpp packs them; it normalises by default.
        found = server.handle_embeddings({"input": sentences})
        assert len(found["data"]) == len(sentences)


embed()
times = []
for _ in range(int(rounds)):
    start = time.perf_counter()
    embed()
    times.append(time.perf_counter() - start)
median = statistics.median(times)
print(json.dumps({"ms": round(median * 1e3, 3), "per_s": round(len(sentences) / median, 1),
                  "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1)}))
