"""Writes the folders beside this file as PyTorch 2.9.0 saves weights, and in `expected.safetensors` the
float tensors of `zip`, `legacy`, `protocol4` and `zipped_again`, contiguous and as FP32.

    python export.py
"""

import io
import json
import os
import zipfile
from collections import OrderedDict
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent
NAME = "pytorch_model.bin"


def save(folder, value, name=NAME, **options):
    folder = HERE / folder
    folder.mkdir(exist_ok=True)
    # Through memory: the name of the archive's folder would be the file's otherwise.
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    (folder / name).write_bytes(buffer.getvalue())


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil-was-run",)


torch.manual_seed(0)
layer = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.LayerNorm(3))
base = torch.randn(4, 6)
half = torch.randn(3, 4)
state = layer.state_dict()  # an OrderedDict with attributes
state |= {
    "parameter": torch.nn.Parameter(torch.randn(2, 2)),
    "half": half.half(),
    "brain": half.bfloat16(),
    "half.transposed": half.half().T,
    "base": base,
    "base.tied": base,
    "base.transposed": base.T,
    "base.rows": base[1:3],
    "base.columns": base[:, 1:5:2],
    "base.last": base[3, 5],
    "base.permuted": base.view(2, 2, 6).permute(2, 0, 1),
    "brain.rows": half.bfloat16()[1:],
    "expanded": torch.tensor([[1.5], [-2.0]]).expand(2, 7),
    "one": torch.tensor(2.5),
    "none": torch.zeros(0, 3),
    "odd": torch.arange(3, dtype=torch.uint8),
    "after.odd": torch.randn(3),
    "i64": torch.arange(4),
    "i64.expanded": torch.arange(4).expand(2, -1),
    "i32": torch.arange(4, dtype=torch.int32),
    "i16": torch.arange(4, dtype=torch.int16),
    "i8": torch.arange(4, dtype=torch.int8),
    "bool": torch.tensor([True, False]),
    "version": 3,
    "names": ["a", ("b", 1.5, None, 2**40, -1)],
}
save("zip", state)
save("legacy", state, _use_new_zipfile_serialization=False)
save("protocol4", state, pickle_protocol=4)
for key in ["state_dict", "model_state_dict", "model", "module"]:
    save(f"within_{key}", {"epoch": 3, "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}}, key: {"x": torch.ones(2)}})


def zipped_again(folder, compression):
    (HERE / folder).mkdir(exist_ok=True)
    with zipfile.ZipFile(HERE / "zip" / NAME) as old:
        with zipfile.ZipFile(HERE / folder / NAME, "w", compression) as new:
            new.comment = b"As other programs write archives: storages begin anywhere."
            for entry in old.infolist():
                new.writestr(zipfile.ZipInfo(entry.filename), old.read(entry), compression)


zipped_again("zipped_again", zipfile.ZIP_STORED)
zipped_again("deflated", zipfile.ZIP_DEFLATED)
floats = {
    name: tensor.detach().float().clone(memory_format=torch.contiguous_format)
    for name, tensor in state.items()
    if isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
}
save_file(floats, HERE / "expected.safetensors")

first, second = OrderedDict(list(state.items())[:8]), OrderedDict(list(state.items())[8:])
shards = {f"pytorch_model-0000{n}-of-00002.bin": part for n, part in [(1, first), (2, second)]}
for name, part in shards.items():
    save("shards", part, name)
weight_map = {key: name for name, part in shards.items() for key in part}
index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
(HERE / "shards" / f"{NAME}.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")

save("double", {"x": torch.zeros(2, dtype=torch.float64)})
save("evil", {"x": torch.zeros(2), "y": Evil()})
save("evil_legacy", {"x": torch.zeros(2), "y": Evil()}, _use_new_zipfile_serialization=False)
save("module", layer)
save("tensor", torch.zeros(2))
save("float8", {"x": torch.zeros(2).to(torch.float8_e4m3fn)})
