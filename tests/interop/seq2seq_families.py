"""Checks that transformers loads the encoder-decoders that cloze saves.

    cargo nextest run -p cloze-tests seq2seq_families::what_is_saved
    python tests/interop/seq2seq_families.py target/tmp/seq2seq_families

The test above saves each model of tests/fixtures/seq2seq_families there. No key may be missing, unexpected or of another
shape; logits must be those of the model that transformers saved (to 1e-4 of their scale), and so must what it writes with
two beams.
"""

import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig

saved = pathlib.Path(sys.argv[1])
fixtures = pathlib.Path(__file__).parent.parent / "fixtures" / "seq2seq_families"
worst, n = 0.0, 0
for case in sorted(folder.name for folder in fixtures.iterdir() if folder.is_dir()):
    golden = load_file(fixtures / case / "golden.safetensors")
    config = AutoConfig.from_pretrained(saved / case)
    model_class = getattr(transformers, config.architectures[0])
    model, loading = model_class.from_pretrained(saved / case, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not loading[key], f"{case}: {key}: {loading[key]}"

    def padded(side):
        rows = golden[side].split(golden[f"{side}_lengths"].tolist())
        rows = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=config.pad_token_id)
        mask = torch.arange(rows.shape[1])[None] < golden[f"{side}_lengths"][:, None]
        return rows, mask.long()

    (source, source_mask), (target, target_mask) = padded("source"), padded("target")
    with torch.no_grad():
        logits = model(source, attention_mask=source_mask, decoder_input_ids=target).logits[target_mask == 1]
    error = ((logits - golden["logits"]).abs().max() / golden["logits"].abs().max()).item()
    assert error < 1e-4, f"{case}: logits are off by {error:.1e} of their scale"
    original = model_class.from_pretrained(fixtures / case)
    written = [m.generate(source, attention_mask=source_mask, num_beams=2, max_length=12) for m in (model, original)]
    assert written[0].equal(written[1]), f"{case}: {written}"
    n, worst = n + 1, max(worst, error)
print(f"{n} models: no key missing or unexpected, logits and translations agree, largest difference {worst:.1e}")
