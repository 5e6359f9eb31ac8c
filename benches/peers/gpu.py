"""A model's work in PyTorch on a GPU, as `cargo xtask bench gpu` runs it beside ours.

    python benches/peers/gpu.py WORK PRESET BATCH LEN cuda:0|cpu f32|bf16|f16 SECONDS [STEPS] [FOLDER] [--profile] [--whole]

WORK is `pretrain`, `finetune`, `embed`, `generate` or `curve`, as in `crates/cli/benches/device.rs`, whose rule draws the
texts here too. `curve` begins with the weights that our side saved in FOLDER, without dropout. The encoder is the best we
know how to write: one product for query, key and value, scaled dot-product attention, logits of masked positions only,
torch.compile on a GPU, fused AdamW; with --whole the model is compiled as a whole, otherwise layer, embeddings and heads are by
themselves, which takes a tenth of the time to compile and is nearly as fast. Below 32 bits under autocast, with FP32 weights. Of f32 products TF32 may make a part, as on our
side. `generate` is transformers' own, greedy.

Prints one JSON line: the median time of a step, batch or text, what is done in a second, the memory that PyTorch's
allocator held (on a CPU: the process's peak), the losses; with --profile also the kernels of a step with their times.
"""

import contextlib
import json
import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

profiled, whole = "--profile" in sys.argv, "--whole" in sys.argv
work, preset, batch, length, device, precision, seconds, *rest = [a for a in sys.argv[1:] if not a.startswith("--")]
batch, length, seconds = int(batch), int(length), float(seconds)
steps = int(rest[0]) if rest else sys.maxsize
device = torch.device(device)
on_gpu = device.type == "cuda"
WARM_UP, KINDS, FIRST, MASK, NEW = 5, 500, 5, 4, 128
torch.manual_seed(0)
if on_gpu:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
DTYPES = {"f32": None, "bf16": torch.bfloat16, "f16": torch.float16}
dtype = DTYPES[precision]


def mixed():
    return torch.autocast(device.type, dtype) if dtype else contextlib.nullcontext()


def drawn(step, row):
    """A number drawn for a row of a step, by SplitMix64."""
    all_bits = (1 << 64) - 1
    bits = (((step << 32) | row) + 1) * 0x9E3779B97F4A7C15 & all_bits
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & all_bits
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & all_bits
    return bits ^ (bits >> 31)


def texts(step):
    """Each token is the one before it plus a number that is the text's own."""
    rows = [drawn(step, row) for row in range(batch)]
    starts = torch.tensor([n % KINDS for n in rows]).unsqueeze(1)
    strides = torch.tensor([1 + (n >> 40) % 7 for n in rows]).unsqueeze(1)
    return FIRST + (starts + torch.arange(length) * strides) % KINDS


def faster(model):
    """Compiled for a GPU. On a CPU, where this is only tried, compiling would take longer than all the rest."""
    if not on_gpu:
        return model
    if whole:
        return torch.compile(model)
    encoder = model if isinstance(model, Encoder) else model.encoder
    encoder.embed = torch.compile(encoder.embed)
    for layer in encoder.layers:
        layer.compile()
    if hasattr(model, "heads"):
        model.heads = torch.compile(model.heads)
    return model


def moved(tensor):
    return (tensor.pin_memory() if on_gpu else tensor).to(device, non_blocking=True)


vocab = 512 if preset == "tiny" else 30522
layers, width = {"tiny": (2, 128), "mini": (4, 256), "base": (12, 768), "large": (24, 1024)}[preset]
heads, dropout = max(width // 64, 1), 0.0 if work == "curve" else 0.1


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x, wanted=None):
        rate = dropout if self.training else 0.0
        q, k, v = self.qkv(x).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
        context = F.scaled_dot_product_attention(q, k, v, dropout_p=rate).transpose(1, 2).reshape(x.shape)
        x = self.norm1(x + F.dropout(self.out(context), rate, self.training))
        if wanted is not None:
            x = x.reshape(-1, width)[wanted]
        return self.norm2(x + F.dropout(self.down(F.gelu(self.up(x))), rate, self.training))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.position = nn.Embedding(vocab, width), nn.Embedding(max(512, length), width)
        self.segment, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList([Layer() for _ in range(layers)])
        self.pooler = nn.Linear(width, width)

    def embed(self, ids, segments):
        x = self.word(ids) + self.segment(segments) + self.position.weight[:length]
        return F.dropout(self.norm(x), dropout, self.training)

    def forward(self, ids, segments, wanted=None):
        """All states, or those of the wanted tokens, for which alone the last layer feeds forward, as on our side."""
        x = self.embed(ids, segments)
        for layer in self.layers[:-1]:
            x = layer(x)
        return self.layers[-1](x, wanted)


def firsts(ids):
    return torch.arange(batch, device=ids.device) * length


class Pretraining(nn.Module):
    """BERT with its two heads."""

    def __init__(self):
        super().__init__()
        self.encoder, self.next = Encoder(), nn.Linear(width, 2)
        self.transform, self.transform_norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, ids, segments, positions, labels, pairs):
        return self.heads(self.encoder(ids, segments, torch.cat([positions, firsts(ids)])), labels, pairs)

    def heads(self, x, labels, pairs):
        masked = x.shape[0] - batch
        states = self.transform_norm(F.gelu(self.transform(x[:masked])))
        logits = F.linear(states, self.encoder.word.weight, self.bias)
        pair_logits = self.next(torch.tanh(self.encoder.pooler(x[masked:])))
        return F.cross_entropy(logits.float(), labels) + F.cross_entropy(pair_logits.float(), pairs)


class Classification(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.output = Encoder(), nn.Linear(width, 2)

    def forward(self, ids, segments, labels):
        pooled = torch.tanh(self.encoder.pooler(self.encoder(ids, segments, firsts(ids))))
        return F.cross_entropy(self.output(F.dropout(pooled, dropout, self.training)).float(), labels)


def initialized(model):
    """Weights as BERT draws them."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
    return model.to(device)


def load(model, folder):
    """The weights of a folder of transformers' BertForPreTraining."""
    from safetensors.torch import load_file

    found = load_file(f"{folder}/model.safetensors")

    def put(module, *names):
        for part in ("weight", "bias"):
            if getattr(module, part, None) is not None:
                value = torch.cat([found[f"{name}.{part}"] for name in names])
                with torch.no_grad():
                    getattr(module, part).copy_(value[:getattr(module, part).shape[0]])

    encoder, start = model.encoder, "bert.embeddings"
    put(encoder.word, f"{start}.word_embeddings")
    put(encoder.position, f"{start}.position_embeddings")
    put(encoder.segment, f"{start}.token_type_embeddings")
    put(encoder.norm, f"{start}.LayerNorm")
    for number, layer in enumerate(encoder.layers):
        start = f"bert.encoder.layer.{number}"
        put(layer.qkv, *(f"{start}.attention.self.{name}" for name in ("query", "key", "value")))
        put(layer.out, f"{start}.attention.output.dense")
        put(layer.norm1, f"{start}.attention.output.LayerNorm")
        put(layer.up, f"{start}.intermediate.dense")
        put(layer.down, f"{start}.output.dense")
        put(layer.norm2, f"{start}.output.LayerNorm")
    put(encoder.pooler, "bert.pooler.dense")
    put(model.next, "cls.seq_relationship")
    put(model.transform, "cls.predictions.transform.dense")
    put(model.transform_norm, "cls.predictions.transform.LayerNorm")
    with torch.no_grad():
        model.bias.copy_(found["cls.predictions.bias"])


def wait():
    if on_gpu:
        torch.cuda.synchronize(device)


def timed(step, all_count=False):
    """The milliseconds of a step, of several blocks of steps; as our side."""
    took, warm = 0.0, 0
    while not all_count and warm < WARM_UP and (warm < 2 or took < seconds):
        start = time.perf_counter()
        step()
        wait()
        took = time.perf_counter() - start
        warm += 1
    block = int(min(max(0.5 / took, 1), 20)) if took > 0 else 1
    begin, times, made = time.perf_counter(), [], 0
    while made == 0 or (made < steps and time.perf_counter() - begin < seconds):
        count = max(min(block, steps - made), 1)
        start = time.perf_counter()
        for _ in range(count):
            step()
        wait()
        times.append((time.perf_counter() - start) * 1e3 / count)
        made += count
    return times


def kernels(step):
    """The kernels of a step on the GPU, or the operations on a CPU: name and milliseconds."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if on_gpu else [])
    count = 3
    with profile(activities=activities) as found:
        for _ in range(count):
            step()
        wait()
    times = {}
    for event in found.key_averages():
        on_device = event.device_type == torch.autograd.DeviceType.CUDA
        if on_device if on_gpu else event.self_cpu_time_total > 0:
            micros = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            times[event.key] = times.get(event.key, 0.0) + micros / 1e3 / count
    return sorted(times.items(), key=lambda item: -item[1])


def training():
    """A step of training, and the losses of all steps, which stay on the device until the end."""
    pretrains = work != "finetune"
    model = initialized(Pretraining() if pretrains else Classification()).train()
    if work == "curve":
        load(model, rest[1])
    compiled = faster(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=True)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "f16")
    if pretrains:
        segments = moved((torch.arange(length) >= length // 2).long().expand(batch, length).contiguous())
    else:
        segments = moved(torch.zeros(batch, length, dtype=torch.long))
    pairs = moved(torch.arange(batch) % 2)
    n_masked = max(batch * length * 15 // 100, 1)
    losses, state = [], {"step": 0}

    def step():
        state["step"] += 1
        number = state["step"]
        ids = texts(number)
        if pretrains:
            apart = max(batch * length // n_masked, 1)
            positions = torch.arange(n_masked) * (batch * length) // n_masked + number % apart
            labels = ids.view(-1)[positions]
            ids.view(-1)[positions] = MASK
            inputs = [moved(ids), segments, moved(positions), moved(labels), pairs]
        else:
            labels = torch.tensor([drawn(number, row) & 1 for row in range(batch)])
            inputs = [moved(ids), segments, moved(labels)]
        with mixed():
            loss = compiled(*inputs)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())

    return step, losses


def embedding():
    model = faster(initialized(Encoder()).eval())
    segments, state = moved(torch.zeros(batch, length, dtype=torch.long)), {"step": 0}

    def step():
        state["step"] += 1
        with torch.inference_mode(), mixed():
            states = model(moved(texts(state["step"])), segments).float()
            F.normalize(states.mean(1), dim=1).cpu()

    return step, []


def generation():
    from transformers import GPT2Config, GPT2LMHeadModel

    size, n_layer, n_embd = {"tiny": (512, 2, 128), "base": (50257, 12, 768)}[preset]
    config = GPT2Config(vocab_size=size, n_layer=n_layer, n_embd=n_embd, n_head=max(n_embd // 64, 1),
                        n_positions=1024, attn_implementation="sdpa")
    model, state = GPT2LMHeadModel(config).to(device, dtype or torch.float32).eval(), {"step": 0}

    def step():
        state["step"] += 1
        ids = moved(texts(state["step"]))
        with torch.inference_mode():
            found = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW,
                                   min_new_tokens=NEW, pad_token_id=0)
            assert found.cpu().shape[1] == length + NEW

    return step, []


make, units = {"pretrain": (training, batch * length), "curve": (training, batch * length),
               "finetune": (training, batch), "embed": (embedding, batch),
               "generate": (generation, batch * NEW)}[work]
step, losses = make()
median = statistics.median(timed(step, work == "curve"))
peak = torch.cuda.max_memory_reserved(device) if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1e3
line = {"ms": round(median, 3), "per_s": round(units / median * 1e3, 1), "peak_mb": round(peak / 1e6, 1),
        "losses": [loss.item() for loss in (losses if work == "curve" else losses[-1:])]}
if profiled:
    line["kernels"] = kernels(step)
print(json.dumps(line))
