"""A run of timm, torch or lightly, as one of our configs of images describes it, for `cargo xtask bench seeing`.

    python benches/peers/seeing.py CONFIG SEED --out FOLDER [--set KEY=VALUE …]

`model.kind = "vit"` is timm's VisionTransformer, `"resnet"` is torch's layers with group normalisation, and
`objective.kind = "contrastive-views"` is lightly: its transform, projection head and loss around transformers' ViTModel, which is
written to FOLDER. Padded crops and mirror images are made in batches of tensors. Augmentation, batches, epochs, AdamW, clipping and
schedule are those of the config. Run it from the repository's root, as the config's paths are.

Prints one JSON line: the accuracy on the test data of the epoch that is best on the images held out, and the seconds of the steps.
Threads are torch's default; set OMP_NUM_THREADS to choose.

    pip install torch==2.9.0 torchvision==0.24.0 transformers==4.57.6 timm lightly pyarrow pillow
"""

import argparse
import copy
import io
import json
import math
import sys
import time

import pyarrow.parquet
import settings
import torch
from images import resnet
from PIL import Image
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("config")
parser.add_argument("seed", type=int)
parser.add_argument("--out", required=True)
parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
args = parser.parse_args()

config = settings.read(args.config, args.set)
data, train, optimizer, schedule = (config[name] for name in ("data", "train", "optimizer", "schedule"))
torch.manual_seed(args.seed)
N_CLASSES = 10
MEAN, STD = (torch.tensor(data[name]).view(3, 1, 1) for name in ("mean", "std"))


def read(paths):
    """Images as they are, and their classes."""
    images, labels = [], []
    for path in paths:
        table = pyarrow.parquet.read_table(path)
        column = data["train"]["columns"]["image"]
        images += [Image.open(io.BytesIO(image["bytes"])).convert("RGB") for image in table[column].to_pylist()]
        labels += table["label"].to_pylist()
    names = sorted(set(labels))
    return images, torch.tensor([names.index(label) for label in labels])


def tensors(images):
    return torch.stack([torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8) for image in images]) \
        .view(-1, 32, 32, 3).permute(0, 3, 1, 2).contiguous()


def normalised(pixels):
    return (pixels.float() / 255 - MEAN) / STD


def changed(pixels):
    """Padded crops and mirror images, drawn for each image."""
    augment, n = config["augment"], len(pixels)
    padding = augment["crop"]["padding"]
    padded = functional.pad(pixels, [padding] * 4)
    down, right = (torch.randint(0, 2 * padding + 1, (n, 1, 1)) for _ in range(2))
    rows, columns = down + torch.arange(32).view(1, 32, 1), right + torch.arange(32).view(1, 1, 32)
    cropped = padded[torch.arange(n).view(n, 1, 1), :, rows, columns].permute(0, 3, 1, 2)
    mirror = torch.rand(n) < augment.get("flip", 0.0)
    return torch.where(mirror.view(n, 1, 1, 1), cropped.flip(3), cropped)


def optimizer_of(model, steps):
    """AdamW, and the rate of each step."""
    decay = optimizer.get("weight_decay", 0.01)
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=optimizer["lr"], betas=(optimizer.get("beta1", 0.9), optimizer.get("beta2", 0.999)),
                             eps=optimizer.get("eps", 1e-6), fused=True)
    warmup = schedule.get("warmup_steps", 0)
    if "warmup_fraction" in schedule:
        warmup = round(schedule["warmup_fraction"] * steps)

    def rate(step):
        if step < warmup:
            return (step + 1) / warmup
        past = (step - warmup) / max(1, steps - warmup)
        return {"cosine": 0.5 * (1 + math.cos(math.pi * past)), "linear": 1 - past}[schedule["kind"]]

    return adam, torch.optim.lr_scheduler.LambdaLR(adam, rate)


def step(model, adam, rates, loss):
    adam.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer.get("clip_norm", 1.0))
    adam.step()
    rates.step()


def accuracy(model, pixels, labels):
    model.eval()
    with torch.inference_mode():
        found = torch.cat([model(normalised(part)).argmax(1) for part in pixels.split(500)])
    return (found == labels).float().mean().item()


def classify():
    images, labels = read(data["train"]["files"])
    pixels = tensors(images)
    test_images, test_labels = read(data["test"])
    test_pixels = tensors(test_images)
    order = torch.randperm(len(pixels))
    held, used = order[:round(data["dev_fraction"] * len(order))], order[round(data["dev_fraction"] * len(order)):]
    shape = config["model"]
    if shape["kind"] == "vit":
        from timm.models import VisionTransformer
        model = VisionTransformer(
            img_size=32, patch_size=shape["patch_size"], embed_dim=shape["d_model"], depth=shape["n_layers"],
            num_heads=shape["n_heads"], mlp_ratio=shape["d_ff"] / shape["d_model"], num_classes=N_CLASSES,
            drop_path_rate=shape.get("stochastic_depth", 0.0))
    else:
        model = resnet()
    size, smoothing = train["batch_size"], config["task"].get("label_smoothing", 0.0)
    steps = train["epochs"] * math.ceil(len(used) / size)
    adam, rates = optimizer_of(model, steps)
    seconds, best = 0.0, (-1.0, None)
    for epoch in range(train["epochs"]):
        model.train()
        for rows in used[torch.randperm(len(used))].split(size):
            start = time.perf_counter()
            batch = normalised(changed(pixels[rows]))
            if shape["kind"] == "resnet":
                batch = batch.contiguous(memory_format=torch.channels_last)
            step(model, adam, rates, functional.cross_entropy(model(batch), labels[rows], label_smoothing=smoothing))
            seconds += time.perf_counter() - start
        found = accuracy(model, pixels[held], labels[held])
        print(f"epoch {epoch + 1}: {found:.4f}, {seconds:.0f} s", file=sys.stderr)
        if found > best[0]:
            best = (found, copy.deepcopy(model.state_dict()))
    model.load_state_dict(best[1])
    return {"figures": {"accuracy": accuracy(model, test_pixels, test_labels)}, "seconds": seconds}


def contrast():
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead
    from lightly.transforms import SimCLRTransform
    from transformers import ViTConfig, ViTModel

    shape, augment, objective = config["model"], config["augment"], config["objective"]
    jitter = augment["jitter"]
    encoder = ViTModel(ViTConfig(
        image_size=32, patch_size=shape["patch_size"], num_hidden_layers=shape["n_layers"], hidden_size=shape["d_model"],
        num_attention_heads=shape["n_heads"], intermediate_size=shape["d_ff"], layer_norm_eps=1e-6, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="sdpa"), add_pooling_layer=False)
    head = SimCLRProjectionHead(shape["d_model"], shape["d_model"], objective.get("d_projection", 128))
    criterion = NTXentLoss(temperature=objective.get("temperature", 0.5))
    # lightly multiplies each strength of the colours by `cj_strength`.
    views = SimCLRTransform(
        input_size=32, cj_prob=jitter["probability"], cj_strength=1.0, cj_bright=jitter["brightness"],
        cj_contrast=jitter["contrast"], cj_sat=jitter["saturation"], cj_hue=jitter["hue"], min_scale=augment["crop"]["scale"][0],
        random_gray_scale=jitter["grey"], gaussian_blur=0.0, hf_prob=augment["flip"],
        normalize={"mean": data["mean"], "std": data["std"]})
    images, _ = read(data["train"]["files"])
    used = torch.randperm(len(images))[round(data["dev_fraction"] * len(images)):].tolist()

    class Views(torch.utils.data.Dataset):
        def __len__(self):
            return len(used)

        def __getitem__(self, place):
            return views(images[used[place]])

    size = train["batch_size"]
    loader = torch.utils.data.DataLoader(Views(), batch_size=size, shuffle=True, num_workers=1, drop_last=False)
    model = torch.nn.ModuleList([encoder, head])
    adam, rates = optimizer_of(model, train["epochs"] * math.ceil(len(used) / size))
    seconds = 0.0
    model.train()
    for epoch in range(train["epochs"]):
        for first, second in loader:
            start = time.perf_counter()
            states = encoder(torch.cat([first, second])).last_hidden_state[:, 0]
            loss = criterion(*head(states).chunk(2))
            step(model, adam, rates, loss)
            seconds += time.perf_counter() - start
        print(f"epoch {epoch + 1}: {loss.item():.4f}, {seconds:.0f} s", file=sys.stderr)
    encoder.save_pretrained(args.out)
    with open(f"{args.out}/preprocessor_config.json", "w", encoding="utf-8") as file:
        json.dump({"do_resize": True, "size": {"height": 32, "width": 32}, "resample": 2, "do_rescale": True,
                   "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": data["mean"], "image_std": data["std"],
                   "image_processor_type": "ViTImageProcessor"}, file)
    return {"figures": {}, "seconds": seconds}


print(json.dumps(contrast() if config.get("objective", {}).get("kind") == "contrastive-views" else classify()))
