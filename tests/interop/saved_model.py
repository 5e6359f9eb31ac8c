"""Checks that transformers loads a folder saved by cloze, and that both give the same answers.

    python tests/interop/saved_model.py CLOZE_PROGRAM MODEL_FOLDER

No key may be missing or unexpected; the tokenizers must agree; `cloze fill-mask` must give the same
pieces with the same probabilities (to 1e-4) as transformers' BertForPreTraining.
"""

import json
import subprocess
import sys

import torch
from transformers import AutoTokenizer, BertForPreTraining

program, folder = sys.argv[1:]
TEXTS = [
    "We must protect the [MASK] of the United States.",
    "The [MASK] of the Union is strong, and our [MASK] is growing.",
    "I ask the Congress to pass this [MASK], naïve as café déjà-vu — 東京!",
]

model, loading = BertForPreTraining.from_pretrained(folder, output_loading_info=True)
for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
    assert not loading[key], f"{key}: {loading[key]}"
model.eval()
tokenizer = AutoTokenizer.from_pretrained(folder)

worst = 0.0
for text in TEXTS:
    line = subprocess.run(
        [program, "fill-mask", "--model", folder, "--json", "--top-k", "5", text],
        check=True, capture_output=True, text=True).stdout
    ours = json.loads(line)["masks"]
    ids = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        logits = model(input_ids=ids["input_ids"], token_type_ids=ids["token_type_ids"]).prediction_logits[0]
    masks = (ids["input_ids"][0] == tokenizer.mask_token_id).nonzero().flatten()
    assert len(masks) == len(ours), text
    for position, candidates in zip(masks, ours):
        probabilities = logits[position].softmax(-1)
        assert [c["id"] for c in candidates] == probabilities.topk(5).indices.tolist(), text
        for candidate in candidates:
            worst = max(worst, abs(candidate["probability"] - probabilities[candidate["id"]].item()))
assert worst < 1e-4, worst
print(f"no missing or unexpected key; {len(TEXTS)} texts agree, largest difference {worst:.1e}")
