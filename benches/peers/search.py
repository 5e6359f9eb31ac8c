"""Nearest neighbours in FAISS, as `cargo xtask bench search` asks it beside ours.

    python benches/peers/search.py flat|hnsw FOLDER K

FOLDER has `rows.f32`, `queries.f32` and `width`, which our benchmark wrote. `flat` is IndexFlatIP, which is exact; `hnsw`
is IndexHNSWFlat with 32 neighbours and efConstruction 100.

Prints one JSON line: seconds to build, the index's bytes, the process's peak memory, and for each way to search its
queries a second and its recall. Threads: OMP_NUM_THREADS, 2 unless set.
"""

import json
import os
import resource
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")

import faiss
import numpy as np

kind, folder, k = sys.argv[1:]
k = int(k)
faiss.omp_set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
width = int(open(f"{folder}/width").read())


def vectors(name):
    return np.fromfile(f"{folder}/{name}", dtype="<f4").reshape(-1, width)


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


queries = vectors("queries.f32")
if kind == "flat":
    index = faiss.IndexFlatIP(width)
else:
    index = faiss.IndexHNSWFlat(width, 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 100
rows = vectors("rows.f32")
build, _ = timed(lambda: index.add(rows))
del rows
ways = []
if kind == "flat":
    seconds, (_, found) = timed(lambda: index.search(queries, k))
    ways.append({"way": "flat", "per_s": len(queries) / seconds, "recall": 1.0})
    np.save(f"{folder}/truth.npy", found)
else:
    truth = np.load(f"{folder}/truth.npy")
    for breadth in [10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]:
        index.hnsw.efSearch = breadth
        seconds, (_, found) = timed(lambda: index.search(queries, k))
        recall = np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, truth)]) / k
        ways.append({"way": f"hnsw, {breadth}", "per_s": len(queries) / seconds, "recall": recall})
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print(json.dumps({"build_s": build, "peak_mb": peak, "version": faiss.__version__, "ways": ways}))
