"""Compares what cloze makes of images with transformers: vectors, classes, and exports to ONNX.

    python tests/interop/images.py target/release/cloze

Needs torch, transformers, pillow and onnxruntime. Makes a ViT, a DeiT with two heads and an MAE with random weights and
their image processors, and images of several sizes, without losses: decoders of JPEG differ in the last bits. Prints the greatest differences of `cloze embed --images`
from the class piece's last state, relative to its greatest value, of `cloze predict` from the probabilities, and of
`cloze export onnx`, run by ONNX Runtime, from transformers' states and logits.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime
import torch
import transformers
from PIL import Image

TOLERANCE = 1e-4
SIZES = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96, image_size=32,
             patch_size=8, initializer_range=0.2)
LABELS = dict(id2label={0: "sea", 1: "tree", 2: "road"}, label2id={"sea": 0, "tree": 1, "road": 2})
MODELS = {
    "vit": (transformers.ViTForImageClassification, transformers.ViTConfig(**SIZES, **LABELS)),
    "deit": (transformers.DeiTForImageClassificationWithTeacher, transformers.DeiTConfig(**SIZES, **LABELS)),
    "mae": (transformers.ViTMAEForPreTraining, transformers.ViTMAEConfig(**SIZES, decoder_hidden_size=32,
            decoder_num_hidden_layers=1, decoder_num_attention_heads=4, decoder_intermediate_size=32)),
}


def cloze(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pictures(folder):
    random = np.random.default_rng(7)
    for number, (width, height) in enumerate([(32, 32), (80, 50), (33, 130), (200, 200)]):
        waves = np.add.outer(np.arange(height) * (number + 1), np.arange(width) * 2)[..., None]
        values = (waves + random.integers(0, 60, (height, width, 3))) % 256
        image = Image.fromarray(values.astype(np.uint8))
        image.save(folder / (f"{number}.png" if number % 2 else f"{number}.bmp"))
    return sorted(folder.iterdir())


def difference(found, expected):
    return float(np.abs(np.asarray(found) - np.asarray(expected)).max() / np.abs(np.asarray(expected)).max())


def check(program, name, folder, images):
    cls, config = MODELS[name]
    torch.manual_seed(3)
    model = cls(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    place = folder / name
    model.save_pretrained(place)
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32}, resample=Image.Resampling.BICUBIC)
    processor.save_pretrained(place)
    pixels = processor([Image.open(path).convert("RGB") for path in images], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        if name == "mae":
            model.config.mask_ratio = model.vit.config.mask_ratio = 0.0
            model.vit.embeddings.config.mask_ratio = 0.0
        states = model.base_model(pixels).last_hidden_state
        logits = None if name == "mae" else model(pixels).logits
    found = {}
    lines = cloze(program, "embed", "--model", place, "--images", images[0].parent).splitlines()
    found["embed"] = difference([json.loads(line)["embedding"] for line in lines], states[:, 0])
    session = lambda out: onnxruntime.InferenceSession(str(out / "model.onnx"), providers=["CPUExecutionProvider"])
    out = folder / f"{name}-states"
    cloze(program, "export", "onnx", "--model", place, "--out", out, "--states")
    assert (out / "preprocessor_config.json").exists()
    all_states = session(out).run(None, {"pixel_values": pixels.numpy()})[0]
    # transformers' MAE shuffles its patches even where it masks none.
    found["onnx states"] = difference(all_states[:, :1] if name == "mae" else all_states,
                                      states[:, :1] if name == "mae" else states)
    if logits is not None:
        rows = "".join(json.dumps({"image": str(path)}) + "\n" for path in images)
        (folder / "rows.jsonl").write_text(rows)
        lines = cloze(program, "predict", "--model", place, "--input", folder / "rows.jsonl").splitlines()
        scores = [[json.loads(line)["scores"][label] for label in LABELS["label2id"]] for line in lines]
        found["predict"] = difference(scores, logits.softmax(-1))
        out = folder / f"{name}-onnx"
        cloze(program, "export", "onnx", "--model", place, "--out", out)
        for batch in (1, len(images)):
            outputs = session(out).run(["logits"], {"pixel_values": pixels[:batch].numpy()})[0]
            found[f"onnx logits of {batch}"] = difference(outputs, logits[:batch])
    print(name, ", ".join(f"{what} {value:.1e}" for what, value in found.items()))
    assert all(value < TOLERANCE for value in found.values()), name


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "images").mkdir()
        images = pictures(folder / "images")
        for name in MODELS:
            check(program, name, folder, images)


if __name__ == "__main__":
    main()
