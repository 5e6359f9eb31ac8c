"""Checks that transformers loads what cloze saves of BERT's family, with every head.

    cargo nextest run -p cloze-tests every_head_of_every_family
    python tests/interop/families.py target/tmp/families [family ...]

The test above saves each model of tests/fixtures/families there. Families that the installed transformers does not know
are left out: NomicBERT and GTE came with version 5. No key may be missing, unexpected or of another shape; classes and
labels must be the saved ones; logits must be those of the model that transformers saved (to 1e-4 of their scale).
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file
from transformers import CONFIG_MAPPING, AutoConfig

saved = pathlib.Path(sys.argv[1])
fixtures = pathlib.Path(__file__).parent.parent / "fixtures" / "families"
HEADS = ["mlm", "sequence", "tokens", "spans", "choice"]
OWN_HEADS = {"electra": ["replaced"]}
ALL_HEADS = {"t5": ["encoder", "tokens"], "mt5": ["encoder", "tokens"]}
ALL_HEADS |= {family: ["sequence", "tokens"] for family in ("gpt2", "llama", "mistral", "qwen2")}
n, worst, left_out = 0, 0.0, set()
for family in sys.argv[2:] or sorted(folder.name for folder in fixtures.iterdir() if folder.is_dir()):
    golden = load_file(fixtures / family / "golden.safetensors")
    mask = 1 - golden["pad_mask"].long()
    given_types = golden["token_type_ids"]
    if family == "xlnet":  # its classes read the last token, so padding is on the left
        padded_left = lambda x: torch.stack([row.roll(int((seen == 0).sum())) for row, seen in zip(x, right)])
        right = mask
        golden["input_ids"], given_types, mask = (padded_left(x) for x in (golden["input_ids"], given_types, mask))
    for head in ALL_HEADS.get(family, HEADS + OWN_HEADS.get(family, [])):
        folder = saved / family / head
        if not folder.is_dir():
            assert f"{head}.logits" not in golden, f"{family}, {head}: run the test"
            continue
        if json.loads((folder / "config.json").read_text())["model_type"] not in CONFIG_MAPPING:
            left_out.add(family)
            continue
        config = AutoConfig.from_pretrained(folder)
        if head in ("sequence", "tokens"):
            assert config.id2label == {0: "no", 1: "maybe", 2: "yes"}, config.id2label
            assert config.label2id == {"no": 0, "maybe": 1, "yes": 2}, config.label2id
        model, loading = getattr(transformers, config.architectures[0]).from_pretrained(
            folder, output_loading_info=True)
        if family == "nomic-published":  # whose masked-LM head has no biases; transformers' class begins with zeros
            loading["missing_keys"] = [key for key in loading["missing_keys"]
                                       if not (key.startswith("cls.") and key.endswith("bias"))]
        for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
            assert not loading[key], f"{family}, {head}: {key}: {loading[key]}"
        model.eval()
        given = {"input_ids": golden["input_ids"], "attention_mask": mask}
        if getattr(config, "type_vocab_size", 0) > 1 or family == "xlnet":
            given["token_type_ids"] = given_types
        if family == "xlm":
            given["langs"] = given_types
        if head == "choice":
            given = {name: value.unsqueeze(0) for name, value in given.items()}
        with torch.no_grad():
            output = model(**given)
        if head == "spans":
            logits = torch.stack([output.start_logits, output.end_logits], dim=-1)[mask == 1]
        elif head == "encoder":
            logits = output.last_hidden_state[mask == 1]
        elif head == "replaced":
            logits = output.logits[mask == 1].unsqueeze(-1)
        else:
            logits = output.logits[mask == 1] if head in ("mlm", "tokens") else output.logits
        expected = golden[f"{head}.logits"]
        error = ((logits - expected).abs().max() / expected.abs().max()).item()
        assert error < 1e-4, f"{family}, {head}: logits are off by {error:.1e} of their scale"
        n, worst = n + 1, max(worst, error)
print(f"{n} models: no key missing or unexpected, labels and logits agree, largest difference {worst:.1e}")
if left_out:
    print("left out:", *sorted(left_out))
