"""A training run of a sentence encoder in sentence-transformers, as one of our configs describes it.

    python benches/peers/train_embeddings.py CONFIG SEED [--set KEY=VALUE …] [--max-steps N]

The model, the losses and the evaluator are sentence-transformers'; the loop is that of its `fit`: shuffled batches, AdamW
without decay of biases and norms, a linear schedule. Losses: in-batch negatives (in chunks too), SimCSE, cosine, CoSENT, softmax.
No two examples of a contrastive batch have a text in common. Run it from the repository's root, as the config's paths are.

Measures Spearman's and Pearson's correlation on the development data after every epoch, and on the test data with the epoch
that was best by Spearman's, the last one without development data. Prints one JSON line: these figures, and the seconds of the
epochs' steps. Threads: OMP_NUM_THREADS, 2 unless set.

    pip install torch==2.9.0 transformers==4.57.6 sentence-transformers==5.1.2 scipy
"""

import argparse
import copy
import importlib.metadata
import json
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")

import labelled
import settings
import torch
from sentence_transformers import SentenceTransformer, losses
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
from transformers import get_linear_schedule_with_warmup

parser = argparse.ArgumentParser()
parser.add_argument("config")
parser.add_argument("seed", type=int)
parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
parser.add_argument("--max-steps", type=int, help="end after so many steps, to try")
args = parser.parse_args()

config = settings.read(args.config, args.set)

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
torch.manual_seed(args.seed)
section, data, training = config["task"], config["data"], config["train"]
optimization, schedule = config["optimizer"], config["schedule"]
known = {"kind", "loss", "min_score", "chunk"}
if section["kind"] != "embedding" or set(section) - known:
    raise SystemExit(f"{args.config}: the peer has no task {section}")
if schedule["kind"] != "linear" or schedule.get("final_fraction", 0.0) != 0.0 or training.get("accumulate", 1) != 1:
    raise SystemExit(f"{args.config}: the peer's schedule is linear, to 0, and it does not accumulate")


def rows(paths):
    """With numbers as labels; rows without one are left out where the config says so."""
    return labelled.rows(paths, data["train"], "regression")


train = rows(data["train"]["files"])
if "min_score" in section:
    train = [row for row in train if row["label"] >= section["min_score"]]
splits = {split: rows(data[split]) for split in ("dev", "test") if data.get(split)}

dropouts = {"hidden": "hidden_dropout_prob", "attention": "attention_probs_dropout_prob"}
model = SentenceTransformer(
    config["model"]["path"], device="cpu",
    config_kwargs={dropouts[name]: share for name, share in config["model"].get("dropout", {}).items()})
model.max_seq_length = data.get("max_len", 128)

loss, labels = section["loss"], None
kind, scale = loss["kind"], 1 / loss.get("temperature", 0.05)
contrastive = kind in ("in-batch-negatives", "simcse")
examples = [(row["text"], row["pair"]) for row in train]
if kind == "simcse":
    examples = [(text, text) for pair in examples for text in pair]
if contrastive:
    symmetric, chunk = loss.get("symmetric", False), section.get("chunk")
    name = ("Cached" if chunk else "") + "MultipleNegatives" + ("Symmetric" if symmetric else "") + "RankingLoss"
    objective = getattr(losses, name)(model, scale=scale, **({"mini_batch_size": chunk} if chunk else {}))
elif kind == "cosent":
    objective, labels = losses.CoSENTLoss(model, scale=scale), [row["label"] for row in train]
elif kind == "cosine":
    objective = losses.CosineSimilarityLoss(model)
    labels = [row["label"] / loss.get("max_score", 1.0) for row in train]
elif kind == "softmax":
    names = sorted({row["class"] for row in train})
    objective = losses.SoftmaxLoss(model, model.get_sentence_embedding_dimension(), len(names))
    labels = [names.index(row["class"]) for row in train]
else:
    raise SystemExit(f"{args.config}: the peer has no loss {kind}")


def batches(order):
    """Places of examples; of a contrastive batch no two with a text in common, in the order of NoDuplicatesBatchSampler."""
    size = training["batch_size"]
    if not contrastive:
        yield from (order[start:start + size] for start in range(0, len(order), size))
        return
    while order:
        batch, texts, rest = [], set(), []
        for place in order:
            own = {text.strip().lower() for text in examples[place]}
            if len(batch) < size and not own & texts:
                batch.append(place)
                texts |= own
            else:
                rest.append(place)
        order = rest
        yield batch


def epoch(number):
    shuffle = torch.Generator().manual_seed(args.seed * 1_000 + number)
    return list(batches(torch.randperm(len(examples), generator=shuffle).tolist()))


def figures(split):
    found = EmbeddingSimilarityEvaluator(
        [row["text"] for row in splits[split]], [row["pair"] for row in splits[split]],
        [row["label"] for row in splits[split]], batch_size=64, main_similarity="cosine",
        similarity_fn_names=["cosine"], write_csv=False)(model)
    return {name: round(float(found[f"{name}_cosine"]), 6) for name in ("spearman", "pearson")}


decayed = [parameter for parameter in objective.parameters() if parameter.dim() > 1]
others = [parameter for parameter in objective.parameters() if parameter.dim() <= 1]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": optimization.get("weight_decay", 0.01)},
     {"params": others, "weight_decay": 0.0}],
    lr=optimization["lr"], betas=(optimization.get("beta1", 0.9), optimization.get("beta2", 0.999)),
    eps=optimization.get("eps", 1e-6))
planned = [epoch(number) for number in range(training["epochs"])]
steps = sum(len(one) for one in planned)
rates = get_linear_schedule_with_warmup(optimizer, schedule.get("warmup_steps", 0), steps)

seconds, done, history, best, kept = 0.0, 0, [], None, None
for one in planned:
    start = time.perf_counter()
    model.train()
    for batch in one:
        if done == args.max_steps:
            break
        features = [model.tokenize([examples[place][side] for place in batch]) for side in (0, 1)]
        targets = torch.tensor([labels[place] for place in batch]) if labels else None
        value = objective(features, targets)
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(objective.parameters(), optimization.get("clip_norm", 1.0))
        optimizer.step()
        rates.step()
        done += 1
    seconds += time.perf_counter() - start
    if "dev" in splits:
        history.append(figures("dev"))
        if best is None or history[-1]["spearman"] > best["spearman"]:
            best, kept = history[-1], copy.deepcopy(model.state_dict())
    if done == args.max_steps:
        break
if kept is not None:
    model.load_state_dict(kept)
print(json.dumps({"step_s": round(seconds, 3), "steps": done, "examples": len(examples), "history": history,
                  "figures": figures("test") if "test" in splits else best,
                  "version": importlib.metadata.version("sentence-transformers")}))
