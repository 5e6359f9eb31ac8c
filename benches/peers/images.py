"""Models of images by transformers, as `cargo xtask bench images` runs them beside ours.

    python benches/peers/images.py step vit|resnet|mae STEPS f32|bf16
    python benches/peers/images.py predict FOLDER BATCH ROUNDS f32|bf16|int8
    python benches/peers/images.py caption FOLDER BATCH ROUNDS f32|bf16|int8
    python benches/peers/images.py make|make-captioner FOLDER

`step`: a step with fused AdamW and clipping, at the sizes of `configs/cifar10-vit.toml`, `cifar10-cnn.toml` and `cifar10-mae.toml`;
transformers has no ResNet with group normalisation, so it is torch's layers here, in channels last, which is faster than torch's order. `bf16` is
torch's autocast. `predict`: the logits of a batch of images of the model's size, each made from bytes by the processor's
arithmetic; `bf16` are weights of that type, `int8` is torch's dynamic quantization of linear maps. `caption`: captions of 16 tokens of a batch of such images by
`generate` with 5 beams. `make` writes a ViT-B/16 of random weights, `make-captioner` one with a GPT-2 on it. Prints one JSON line with the median and the process's peak memory; a rate counts images. Threads are torch's
default; set OMP_NUM_THREADS to choose.

    pip install torch==2.9.0 transformers==4.57.6
"""

import json
import resource
import statistics
import sys
import time

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, PreTrainedTokenizerFast, VisionEncoderDecoderConfig, VisionEncoderDecoderModel
from transformers.models.vit import ViTConfig, ViTForImageClassification
from transformers.models.vit_mae import ViTMAEConfig, ViTMAEForPreTraining

SIZES = dict(image_size=32, patch_size=4, num_hidden_layers=6, hidden_size=192, num_attention_heads=3, intermediate_size=384,
             layer_norm_eps=1e-6, attn_implementation="sdpa")


def values(*shape):
    n = 1
    for size in shape:
        n *= size
    return ((torch.arange(n) * 7919 % 2003) / 1001.0 - 1.0).view(shape)


def report(times, n_images):
    ms = statistics.median(times)
    print(json.dumps({"ms": round(ms, 2), "per_s": round(n_images / ms * 1e3, 2),
                      "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1)}))


class Block(torch.nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.stride = 1 if d_in == d_out else 2
        self.first = torch.nn.Conv2d(d_in, d_out, 3, self.stride, padding=1, bias=False)
        self.second = torch.nn.Conv2d(d_out, d_out, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = [torch.nn.GroupNorm(d_out // 8, d_out) for _ in range(2)]

    def forward(self, x):
        y = self.second_norm(self.second(torch.relu(self.first_norm(self.first(x)))))
        if self.stride == 2:
            x = torch.nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, y.shape[1] - x.shape[1]))
        return torch.relu(x + y)


def resnet():
    widths = [16] * 3 + [32] * 3 + [64] * 3
    stem = [torch.nn.Conv2d(3, 16, 3, padding=1, bias=False), torch.nn.GroupNorm(2, 16), torch.nn.ReLU()]
    blocks = [Block(*pair) for pair in zip([16, *widths], widths)]
    end = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10)]
    return torch.nn.Sequential(*stem, *blocks, *end).to(memory_format=torch.channels_last)


def steps_of(what, steps, precision):
    if what == "vit":
        n, model = 128, ViTForImageClassification(ViTConfig(**SIZES, num_labels=10))
        pixels, labels = values(n, 3, 32, 32), torch.arange(n) % 10
        loss_of = lambda: torch.nn.functional.cross_entropy(model(pixels).logits, labels)
    elif what == "resnet":
        n, model = 128, resnet()
        pixels = values(n, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        labels = torch.arange(n) % 10
        loss_of = lambda: torch.nn.functional.cross_entropy(model(pixels), labels)
    else:
        n, model = 256, ViTMAEForPreTraining(ViTMAEConfig(
            **SIZES, decoder_hidden_size=96, decoder_num_hidden_layers=2, decoder_num_attention_heads=3,
            decoder_intermediate_size=192, norm_pix_loss=True))
        pixels = values(n, 3, 32, 32)
        loss_of = lambda: model(pixels).loss
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=True)
    times = []
    for step in range(steps + 2):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step >= 2:
            times.append((time.perf_counter() - start) * 1e3)
    report(times, n)


def predict(folder, batch, rounds, precision):
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = ViTForImageClassification.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()
    if precision == "int8":
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    side = model.config.image_size
    grey = (torch.arange(side * side) * 7919 % 256).to(torch.uint8).view(1, 1, side, side).expand(batch, 3, side, side)
    times = []
    with torch.inference_mode():
        for round in range(rounds + 1):
            start = time.perf_counter()
            pixels = ((grey * (1 / 255)) - 0.5) / 0.5
            model(pixels.to(dtype)).logits.float().softmax(-1).tolist()
            if round > 0:
                times.append((time.perf_counter() - start) * 1e3)
    report(times, batch)


def caption(folder, batch, rounds, precision):
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = VisionEncoderDecoderModel.from_pretrained(folder, dtype=dtype).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    if precision == "int8":
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    side = model.config.encoder.image_size
    grey = (torch.arange(side * side) * 7919 % 256).to(torch.uint8).view(1, 1, side, side).expand(batch, 3, side, side)
    times = []
    with torch.inference_mode():
        for round in range(rounds + 1):
            start = time.perf_counter()
            pixels = ((grey * (1 / 255)) - 0.5) / 0.5
            ids = model.generate(pixels.to(dtype), num_beams=5, max_new_tokens=16, min_new_tokens=16, do_sample=False)
            tokenizer.batch_decode(ids, skip_special_tokens=True)
            if round > 0:
                times.append((time.perf_counter() - start) * 1e3)
    report(times, batch)


def make_captioner(folder):
    words = ["<s>", "</s>", "<unk>", *(f"w{number}" for number in range(50_254))]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="</s>",
                            unk_token="<unk>").save_pretrained(folder)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        ViTConfig(), GPT2Config(bos_token_id=0, eos_token_id=1))
    config.decoder_start_token_id, config.eos_token_id, config.pad_token_id = 0, 1, 1
    VisionEncoderDecoderModel(config=config).save_pretrained(folder)


if __name__ == "__main__":
    torch.manual_seed(0)
    match sys.argv[1:]:
        case ["step", what, steps, precision]:
            steps_of(what, int(steps), precision)
        case ["predict", folder, batch, rounds, precision]:
            predict(folder, int(batch), int(rounds), precision)
        case ["caption", folder, batch, rounds, precision]:
            caption(folder, int(batch), int(rounds), precision)
        case ["make-captioner", folder]:
            make_captioner(folder)
        case ["make", folder]:
            ViTForImageClassification(ViTConfig(num_labels=1000)).save_pretrained(folder)
        case _:
            sys.exit(__doc__)
