"""Checks that transformers computes with what cloze saves of every dialect as it does with the original.

    cargo nextest run -p cloze-tests what_is_saved_of_a_dialect
    python tests/interop/dialects.py target/tmp/dialects

The test above saves each case of tests/fixtures/dialects there. What the installed version computes must be what some
version computed of the original (to 1e-4 of its scale). A model that only transformers 5 has may fail to load in
transformers 4, and must not compute anything else.
"""

import pathlib
import sys

from safetensors.torch import load_file

fixtures = pathlib.Path(__file__).parent.parent / "fixtures" / "dialects"
sys.path.insert(0, str(fixtures))
import export  # noqa: E402

saved = pathlib.Path(sys.argv[1])
files = sorted(fixtures.glob("golden-*.safetensors"))
golden = {}
for path in files:
    golden |= load_file(path)
n, worst, left_out = 0, 0.0, []
for name, (kind, *_) in export.CASES.items():
    if export.model_type(kind) not in export.transformers.CONFIG_MAPPING:
        left_out.append(name)
        continue
    try:
        _, found = export.outputs(kind, saved / name)
    except TypeError as error:
        assert not export.NEW, f"{name}: {error}"
        left_out.append(name)
        continue
    for what, tensor in found.items():
        expected = golden[f"{name}.{what}"]
        error = ((tensor - expected).abs().max() / expected.abs().max()).item()
        assert error < 1e-4, f"{name}, {what}: off by {error}"
        worst, n = max(worst, error), n + 1
print(f"{n} outputs, off by at most {worst:.1e}; left out:", ", ".join(left_out) or "none")
