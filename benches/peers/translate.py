"""A translation run of plain PyTorch, as one of our configs describes it, and what its model translates.

    python benches/peers/translate.py CONFIG --tokenizer FOLDER --out DIR [--set KEY=VALUE …] [--minutes N | --steps N]
        [--translate FILE] [--beams N] [--length-penalty A] [--held-out 0|1]

Trains the network of `[model]`: `kind = "transformer"` is a Transformer of nn.Linear and fused attention, `"recurrent"`
one of nn.LSTM and nn.LSTMCell, or of nn.GRU and nn.GRUCell, with attention or without, `"convolutional"` one of
nn.Conv1d and nn.Linear with weight normalisation. Initial weights, the order of the sums, batches by tokens of pairs of
similar length, label smoothing, the schedule, clipping and the mean of the last weights are those of our side; random
numbers are PyTorch's. FOLDER holds the `tokenizer.json` of our run, or `source/tokenizer.json` and
`target/tokenizer.json`. Run it from the repository's root, as the config's paths are.

Writes DIR/model.pt and, of the lines of FILE, DIR/hypotheses.txt: beam search with keys and values kept, sorted
batches, scores divided by `length^A`. Prints one JSON line: the seconds of the steps, without reading, tokenizing and
evaluations; tokens of both sides a second, padding not counted; the held-out loss and perplexity of a token, without
smoothing; parameters; seconds of translating.

    pip install torch==2.9.0 tokenizers
"""

import argparse
import json
import math
import os
import random
import resource
import time

import torch
import torch.nn.functional as F
from settings import read as read_config
from tokenizers import Tokenizer
from torch import nn

# Pairs of a pool that is sorted by length: so many batches, about.
POOL = 50


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--minutes", type=float, help="end after so many minutes of steps")
    parser.add_argument("--steps", type=int, help="end after so many steps; the schedule stays the config's")
    parser.add_argument("--translate", metavar="FILE")
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--length-penalty", type=float, default=1.0)
    parser.add_argument("--held-out", type=int, default=1, help="0: do not measure on the held-out pairs")
    return parser.parse_args()


class Vocabularies:
    """The tokenizers of both sides, and the ids that mean something."""

    def __init__(self, folder):
        joint = os.path.join(folder, "tokenizer.json")
        paths = [joint, joint] if os.path.exists(joint) else [
            os.path.join(folder, side, "tokenizer.json") for side in ("source", "target")]
        self.source, self.target = (Tokenizer.from_file(path) for path in paths)
        self.is_joint = paths[0] == paths[1]
        for tokenizer in (self.source, self.target):
            tokenizer.no_truncation()
            tokenizer.no_padding()
        self.pad, self.eos = self.target.token_to_id("<pad>"), self.target.token_to_id("</s>")
        begin = self.target.token_to_id("<s>")
        self.start = self.eos if begin is None else begin

    def encode(self, tokenizer, lines):
        """Ids that end with `</s>`, and begin with no special token."""
        for encoding in tokenizer.encode_batch(lines, add_special_tokens=False):
            yield encoding.ids + [self.eos]


def read_pairs(section, vocabularies, max_len):
    """Pairs of ids; those that our side refuses are left out: an empty side, or one that is too long."""
    def lines(paths):
        texts = []
        for path in paths:
            with open(path, encoding="utf-8") as file:
                texts += [line.rstrip("\n") for line in file]
        return texts

    sources, targets = lines(section["source"]), lines(section["target"])
    if len(sources) != len(targets):
        raise SystemExit(f"{len(sources)} sources, {len(targets)} targets")
    kept = [(s, t) for s, t in zip(sources, targets) if s.strip() and t.strip()]
    sides = [vocabularies.encode(vocabularies.source, [s for s, _ in kept]),
             vocabularies.encode(vocabularies.target, [t for _, t in kept])]
    return [pair for pair in zip(*sides) if max(map(len, pair)) <= max_len]


class Buckets:
    """Batches of pairs of similar length, in another order each epoch, without end."""

    def __init__(self, pairs, train, seed):
        self.pairs, self.random = pairs, random.Random(seed)
        self.tokens, self.most = train.get("batch_tokens"), train.get("batch_size")
        if not self.tokens and not self.most:
            raise SystemExit("train.batch_tokens or train.batch_size is needed")

    def cut(self, pairs):
        """A batch ends before its padded size, pairs times the longest one's length, exceeds the tokens."""
        batch = []
        for pair in sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1])):
            longest = len(pair[0]) + len(pair[1])
            full = self.tokens and (len(batch) + 1) * longest > self.tokens
            if batch and (full or (self.most and len(batch) == self.most)):
                yield batch
                batch = []
            batch.append(pair)
        if batch:
            yield batch

    def __iter__(self):
        mean = sum(len(s) + len(t) for s, t in self.pairs) / len(self.pairs)
        pool = POOL * (self.most or max(int(self.tokens / mean), 1))
        while True:
            order = self.random.sample(self.pairs, len(self.pairs))
            batches = [batch for start in range(0, len(order), pool) for batch in self.cut(order[start:start + pool])]
            self.random.shuffle(batches)
            yield from batches


def padded(sequences, pad):
    longest = max(map(len, sequences))
    return torch.tensor([ids + [pad] * (longest - len(ids)) for ids in sequences])


def sinusoids(length, width):
    """All sines before all cosines, as in tensor2tensor and fairseq."""
    half = width // 2
    rates = torch.exp(torch.arange(half) * -(math.log(10_000) / max(half - 1, 1)))
    angles = torch.arange(length)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], 1)


class Attention(nn.Module):
    """Queries and memory with keys and values kept by whoever decodes."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys_and_values(self, memory):
        return self.split(self.key(memory)), self.split(self.value(memory))

    def forward(self, x, keys, values, mask=None, causal=False):
        context = F.scaled_dot_product_attention(
            self.split(self.query(x)), keys, values, attn_mask=mask, is_causal=causal,
            dropout_p=self.dropout if self.training else 0.0)
        return self.out(context.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Of the encoder, or with `cross` of the decoder; normalises before or after each part."""

    def __init__(self, settings, cross):
        super().__init__()
        width, heads = settings["d_model"], settings["n_heads"]
        dropout = settings.get("attention_dropout", 0.0)
        self.before = settings.get("norm", "post") == "pre"
        self.attention = Attention(width, heads, dropout)
        self.cross = Attention(width, heads, dropout) if cross else None
        self.up, self.down = nn.Linear(width, settings["d_ff"]), nn.Linear(settings["d_ff"], width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3 if cross else 2)])
        self.dropout = nn.Dropout(settings.get("dropout", 0.1))
        self.inner = nn.Dropout(settings.get("activation_dropout", 0.0))
        self.activation = {"relu": F.relu, "gelu": F.gelu}[settings.get("activation", "relu")]

    def around(self, norm, x, part):
        if self.before:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))

    def forward(self, x, mask=None, memory=None, memory_mask=None, kept=None):
        """`memory`: the encoder's keys and values for this layer. `kept`: this layer's own so far, for one new token."""
        def attend(x):
            keys, values = self.attention.keys_and_values(x)
            if kept is not None:
                if kept:
                    keys, values = torch.cat([kept[0], keys], 2), torch.cat([kept[1], values], 2)
                kept[:] = [keys, values]
            return self.attention(x, keys, values, mask, causal=self.cross is not None and kept is None)

        x = self.around(self.norms[0], x, attend)
        if self.cross is not None:
            x = self.around(self.norms[1], x, lambda x: self.cross(x, *memory, memory_mask))
        feed_forward = lambda x: self.down(self.inner(self.activation(self.up(x))))
        return self.around(self.norms[-1], x, feed_forward)


class Transformer(nn.Module):
    """Vaswani et al. 2017."""

    def __init__(self, settings, vocabularies):
        super().__init__()
        width, self.pad = settings["d_model"], vocabularies.pad
        sizes = [vocabularies.source.get_vocab_size(), vocabularies.target.get_vocab_size()]
        tied = settings.get("tied", True)
        table = lambda size: nn.Embedding(size, width, padding_idx=self.pad)
        self.target_table = table(sizes[1])
        self.source_table = self.target_table if tied and vocabularies.is_joint else table(sizes[0])
        self.output = self.target_table.weight if tied else nn.Parameter(torch.empty(sizes[1], width))
        self.register_buffer("positions", sinusoids(1024, width), persistent=False)
        n_layers = settings["n_layers"]
        self.encoder = nn.ModuleList([Layer(settings, False) for _ in range(n_layers)])
        self.decoder = nn.ModuleList(
            [Layer(settings, True) for _ in range(settings.get("n_decoder_layers", n_layers))])
        pre = settings.get("norm", "post") == "pre"
        self.norms = nn.ModuleList([nn.LayerNorm(width) if pre else nn.Identity() for _ in range(2)])
        self.dropout, self.scale = nn.Dropout(settings.get("dropout", 0.1)), math.sqrt(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and ("table" in name or name == "output"):
                nn.init.normal_(parameter, std=width ** -0.5)
            elif parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        for table in {self.source_table, self.target_table}:
            nn.init.zeros_(table.weight[self.pad])

    def embed(self, table, ids, first=0):
        return self.dropout(table(ids) * self.scale + self.positions[first:first + ids.shape[1]])

    def begin(self, source):
        """What decoding starts from: the encoder's keys and values for each layer of the decoder, and the mask."""
        mask = (source != self.pad)[:, None, None]
        x = self.embed(self.source_table, source)
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.norms[0](x)
        return {"memory": [layer.cross.keys_and_values(x) for layer in self.decoder], "mask": mask,
                "kept": [[] for _ in self.decoder], "step": 0}

    def decode(self, x, state, kept):
        for layer, memory, own in zip(self.decoder, state["memory"], kept):
            x = layer(x, None, memory, state["mask"], own)
        return F.linear(self.norms[1](x), self.output)

    def forward(self, source, target):
        state = self.begin(source)
        return self.decode(self.embed(self.target_table, target), state, [None] * len(self.decoder))

    def step(self, tokens, state):
        x = self.embed(self.target_table, tokens[:, None], state["step"])
        state["step"] += 1
        return self.decode(x, state, state["kept"])[:, 0]

    @staticmethod
    def select(state, rows):
        pick = lambda pair: [part[rows] for part in pair]
        return state | {"memory": [pick(pair) for pair in state["memory"]], "mask": state["mask"][rows],
                        "kept": [pick(pair) for pair in state["kept"]]}


class Recurrent(nn.Module):
    """An LSTM or GRU that reads, and one that writes: without attention (Sutskever et al. 2014), with that of Bahdanau
    et al. 2015, or of Luong et al. 2015 with or without input feeding. A layer that can run over all of a target at once
    is one nn.LSTM or nn.GRU; one that needs what the attention gave the token before is an nn.LSTMCell or nn.GRUCell."""

    def __init__(self, settings, vocabularies):
        super().__init__()
        d, e, self.pad = settings["d_model"], settings.get("d_embedding", settings["d_model"]), vocabularies.pad
        n_encoder = settings.get("n_layers", 1)
        n_decoder = settings.get("n_decoder_layers", n_encoder)
        self.wiring, score = settings.get("attention", "bahdanau"), settings.get("score", "additive")
        self.reading, self.is_lstm = settings.get("reading", "both"), settings.get("cell", "lstm") == "lstm"
        whole, alone = (nn.LSTM, nn.LSTMCell) if self.is_lstm else (nn.GRU, nn.GRUCell)
        dropout = settings.get("dropout", 0.2)
        sizes = [vocabularies.source.get_vocab_size(), vocabularies.target.get_vocab_size()]
        tied = settings.get("tied", True)
        self.target_table = nn.Embedding(sizes[1], e)
        self.source_table = self.target_table if tied and vocabularies.is_joint else nn.Embedding(sizes[0], e)
        both = self.reading == "both"
        self.encoder = whole(e, d // 2 if both else d, n_encoder, batch_first=True, bidirectional=both,
                             dropout=dropout if n_encoder > 1 else 0.0)
        n_states = 2 if self.is_lstm else 1
        self.bridge = None if settings.get("bridge", "linear") == "copy" else \
            nn.ModuleList([nn.Linear(d, d) for _ in range(n_states * n_decoder)])
        d_readout = e if tied else d
        added = {"bahdanau": lambda i: d, "luong-input-feeding": lambda i: d_readout if i == 0 else 0}
        added = added.get(self.wiring, lambda i: 0)
        self.is_stepwise = self.wiring in ("bahdanau", "luong-input-feeding")
        self.layers = nn.ModuleList()
        for i in range(n_decoder):
            width = (e if i == 0 else d) + added(i)
            by_step = self.wiring == "luong-input-feeding" or (self.wiring == "bahdanau" and i == 0)
            self.layers.append(alone(width, d) if by_step else whole(width, d, batch_first=True))
        if self.wiring != "none":
            self.score = score
            if score == "additive":
                self.query, self.key = nn.Linear(d, d, bias=False), nn.Linear(d, d)
                self.vector = nn.Linear(d, 1, bias=False)
            elif score == "general":
                self.key = nn.Linear(d, d, bias=False)
            elif score != "dot":
                raise SystemExit(f"the peer has no score {score}")
            self.readout = nn.Linear(2 * d + (e if self.wiring == "bahdanau" else 0), d_readout)
        else:
            self.readout = nn.Linear(d, d_readout) if d != d_readout else nn.Identity()
        self.output = nn.Linear(d_readout, sizes[1])
        nn.init.uniform_(self.target_table.weight, -0.1, 0.1)
        nn.init.uniform_(self.source_table.weight, -0.1, 0.1)
        if tied:
            self.output.weight = self.target_table.weight
            nn.init.zeros_(self.output.bias)
        self.dropout, self.width, self.d_readout = nn.Dropout(dropout), d, d_readout

    def begin(self, source):
        lengths = (source != self.pad).sum(1)
        if self.reading == "reverse":
            places = torch.arange(source.shape[1]).expand_as(source)
            source = source.gather(1, torch.where(source != self.pad, lengths[:, None] - 1 - places, places))
        packed = nn.utils.rnn.pack_padded_sequence(
            self.dropout(self.source_table(source)), lengths, batch_first=True, enforce_sorted=False)
        memory, last = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(memory, batch_first=True)
        last = last if self.is_lstm else (last,)
        if self.reading == "both":
            last = [x.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2) for x in last]

        def bridged(part, x, i):
            x = x[min(i, len(x) - 1)]
            return x if self.bridge is None else torch.tanh(self.bridge[len(last) * i + part](x))

        state = {name: [bridged(part, x, i) for i in range(len(self.layers))]
                 for part, (name, x) in enumerate(zip(("hidden", "cell"), last))}
        if self.wiring != "none":
            state |= {"memory": memory, "keys": memory if self.score == "dot" else self.key(memory),
                      "mask": source != self.pad}
        if self.wiring == "luong-input-feeding":
            state["fed"] = memory.new_zeros(len(source), self.d_readout)
        return state

    def attend(self, query, state):
        """Contexts of `[rows, n, d]` queries."""
        if self.score == "additive":
            scores = self.vector(torch.tanh(self.query(query)[:, :, None] + state["keys"][:, None]))[..., 0]
        else:
            scores = query @ state["keys"].transpose(1, 2)
        return scores.masked_fill(~state["mask"][:, None], -math.inf).softmax(-1) @ state["memory"]

    def run(self, i, x, state):
        """One layer over `[rows, n, d]`, from its state on."""
        layer, names = self.layers[i], ("hidden", "cell") if self.is_lstm else ("hidden",)
        before = [state[name][i] for name in names]
        if isinstance(layer, (nn.LSTMCell, nn.GRUCell)):
            after = layer(x[:, 0], tuple(before) if self.is_lstm else before[0])
            after = after if self.is_lstm else (after,)
            output = after[0][:, None]
        else:
            before = [x[None].contiguous() for x in before]
            output, after = layer(x, tuple(before) if self.is_lstm else before[0])
            after = [x[0] for x in (after if self.is_lstm else (after,))]
        for name, value in zip(names, after):
            state[name][i] = value
        return output

    def above(self, x, state, context=None, first=1):
        """The layers from `first` on; with a context each of them reads it too."""
        for i in range(first, len(self.layers)):
            x = self.dropout(x) if i > 0 else x
            x = self.run(i, x if context is None else torch.cat([x, context], -1), state)
        return x

    def advance(self, x, state):
        """`[rows, n, e]` to what the output layer reads; n is 1 if the wiring needs each step's context."""
        if self.wiring == "bahdanau":
            context = self.attend(state["hidden"][0][:, None], state)
            low = self.run(0, torch.cat([x, context], -1), state)
            return torch.tanh(self.readout(torch.cat([self.above(low, state, context), context, x], -1)))
        if self.wiring == "luong-input-feeding":
            x = torch.cat([x, state["fed"][:, None]], -1)
        x = self.above(x, state, first=0)
        if self.wiring == "none":
            return self.readout(x)
        read = torch.tanh(self.readout(torch.cat([x, self.attend(x, state)], -1)))
        if self.wiring == "luong-input-feeding":
            state["fed"] = read[:, 0]
        return read

    def forward(self, source, target):
        state, x = self.begin(source), self.dropout(self.target_table(target))
        if not self.is_stepwise:
            read = self.advance(x, state)
        elif self.wiring == "bahdanau":
            # The layers above the lowest one follow once all contexts are known.
            contexts, lows = [], []
            for i in range(x.shape[1]):
                contexts.append(self.attend(state["hidden"][0][:, None], state))
                lows.append(self.run(0, torch.cat([x[:, i:i + 1], contexts[-1]], -1), state))
            context = torch.cat(contexts, 1)
            high = self.above(torch.cat(lows, 1), state, context)
            read = torch.tanh(self.readout(torch.cat([high, context, x], -1)))
        else:
            read = torch.cat([self.advance(x[:, i:i + 1], state) for i in range(x.shape[1])], 1)
        return self.output(self.dropout(read))

    def step(self, tokens, state):
        read = self.advance(self.dropout(self.target_table(tokens[:, None])), state)
        return self.output(self.dropout(read))[:, 0]

    @staticmethod
    def select(state, rows):
        pick = lambda value: [part[rows] for part in value] if isinstance(value, list) else value[rows]
        return {key: pick(value) for key, value in state.items()}


class Convolutional(nn.Module):
    """Gehring et al. 2017, with the choices of fairseq's fconv: nn.Conv1d and nn.Linear with weight normalisation."""

    def __init__(self, settings, vocabularies):
        super().__init__()
        d, e, self.pad = settings["d_model"], settings["d_embedding"], vocabularies.pad
        n_encoder = settings["n_layers"]
        n_decoder, kernel = settings.get("n_decoder_layers", n_encoder), settings.get("kernel", 3)
        dropout, tied = settings.get("dropout", 0.2), settings.get("tied", True)
        sizes = [vocabularies.source.get_vocab_size(), vocabularies.target.get_vocab_size()]

        def normed(map, variance):
            nn.init.normal_(map.weight, std=math.sqrt(variance / map.weight[0].numel()))
            nn.init.zeros_(map.bias)
            return nn.utils.parametrizations.weight_norm(map)

        def table(size):
            table = nn.Embedding(size, e)
            nn.init.normal_(table.weight, std=0.1)
            return table

        def convolution(kernel):
            return normed(nn.Conv1d(d, 2 * d, kernel), 4 * (1 - dropout))

        self.target_table = table(sizes[1])
        self.source_table = self.target_table if tied and vocabularies.is_joint else table(sizes[0])
        self.places = nn.ModuleList([table(settings["max_positions"]) for _ in range(2)])
        self.first = nn.ModuleList([normed(nn.Linear(e, d), 1 - dropout) for _ in range(2)])
        self.last = nn.ModuleList([normed(nn.Linear(d, e), 1.0) for _ in range(2)])
        self.encoder = nn.ModuleList([convolution(kernel) for _ in range(n_encoder)])
        self.decoder = nn.ModuleList([convolution(settings.get("decoder_kernel", kernel)) for _ in range(n_decoder)])
        self.queries = nn.ModuleList([normed(nn.Linear(d, e), 1.0) for _ in range(n_decoder)])
        self.contexts = nn.ModuleList([normed(nn.Linear(e, d), 1.0) for _ in range(n_decoder)])
        if tied:
            self.output = nn.Linear(e, sizes[1])
            self.output.weight = self.target_table.weight
            nn.init.zeros_(self.output.bias)
        else:
            self.output = normed(nn.Linear(e, sizes[1]), 1 - dropout)
        self.dropout, self.width = nn.Dropout(dropout), d

    @staticmethod
    def half(x, y):
        return (x + y) * math.sqrt(0.5)

    def embed(self, side, ids, first=0):
        table = self.target_table if side else self.source_table
        return self.dropout(table(ids) + self.places[side].weight[first:first + ids.shape[1]])

    def begin(self, source):
        mask = source != self.pad
        embedded = self.embed(0, source)
        x = self.first[0](embedded)
        for convolution in self.encoder:
            k = convolution.kernel_size[0]
            y = (self.dropout(x) * mask[..., None]).transpose(1, 2)
            y = F.glu(convolution(F.pad(y, ((k - 1) // 2, k // 2))), 1).transpose(1, 2)
            x = self.half(y, x)
        z = self.last[0](x)
        z = z.detach() + (z - z.detach()) / (2 * len(self.decoder))
        values = self.half(z, embedded) * mask.sum(1).sqrt()[:, None, None]
        kept = [z.new_zeros(len(source), self.width, layer.kernel_size[0] - 1) for layer in self.decoder]
        return {"keys": z, "values": values, "mask": mask[:, None], "kept": kept, "step": 0}

    def decode(self, ids, state):
        embedded = self.embed(1, ids, state["step"])
        state["step"] += ids.shape[1]
        x = self.first[1](embedded)
        for i, convolution in enumerate(self.decoder):
            window = torch.cat([state["kept"][i], self.dropout(x).transpose(1, 2)], 2)
            state["kept"][i] = window[..., window.shape[2] - convolution.kernel_size[0] + 1:]
            y = F.glu(convolution(window), 1).transpose(1, 2)
            query = self.half(self.queries[i](y), embedded)
            scores = (query @ state["keys"].transpose(1, 2)).masked_fill(~state["mask"], -math.inf)
            y = self.half(self.contexts[i](scores.softmax(-1) @ state["values"]), y)
            x = self.half(y, x)
        return self.output(self.dropout(self.last[1](x)))

    def forward(self, source, target):
        return self.decode(target, self.begin(source))

    def step(self, tokens, state):
        return self.decode(tokens[:, None], state)[:, 0]

    @staticmethod
    def select(state, rows):
        chosen = {name: state[name][rows] for name in ("keys", "values", "mask")}
        return state | chosen | {"kept": [kept[rows] for kept in state["kept"]]}


def rate(schedule, step, steps):
    """The share of the peak rate at a step, from 1; our `Schedule::factor`."""
    peak, kind = max(schedule.get("warmup_steps", 0), 1), schedule["kind"]
    if step < peak:
        return step / peak
    done = min((step - peak) / max(steps + 1 - peak, 1), 1.0)
    final = schedule.get("final_fraction", 0.0)
    return {"linear": 1 - (1 - final) * done, "cosine": final + (1 - final) * (1 + math.cos(math.pi * done)) / 2,
            "constant": 1.0, "noam": math.sqrt(peak / step), "inverse-sqrt": math.sqrt(peak / step)}[kind]


class Mean:
    """The mean of the weights after each of the last multiples of some steps, or a moving one of all steps."""

    def __init__(self, settings, model):
        self.settings, self.model, self.kept = settings or {"kind": "none"}, model, []
        if self.settings["kind"] not in ("none", "last", "ema"):
            raise SystemExit(f"the peer has no average of kind {self.settings['kind']}")

    def weights(self):
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    @torch.no_grad()
    def update(self, step, is_last):
        kind = self.settings["kind"]
        if kind == "last" and (step % self.settings["every"] == 0 or is_last):
            self.kept = [*self.kept, self.weights()][-self.settings["checkpoints"]:]
        elif kind == "ema":
            keep = min(self.settings["decay"], (1 + step) / (10 + step))
            if not self.kept:
                self.kept = [self.weights()]
            torch._foreach_lerp_(self.kept[0], list(self.model.parameters()), 1 - keep)

    @torch.no_grad()
    def put(self):
        if self.kept:
            for parameter, *values in zip(self.model.parameters(), *self.kept):
                parameter.copy_(torch.stack(values).mean(0))


def losses(model, batch, vocabularies, smoothing):
    """The batch's summed loss and its target tokens."""
    sources, targets = zip(*batch)
    source, target = padded(sources, vocabularies.pad), padded(targets, vocabularies.pad)
    start = torch.full((len(batch), 1), vocabularies.start)
    logits = model(source, torch.cat([start, target[:, :-1]], 1))
    places = target != vocabularies.pad
    # The vocabulary's projection is of padding too, as in what people write; the loss is not.
    return F.cross_entropy(logits[places], target[places], label_smoothing=smoothing, reduction="sum"), places.sum()


def train(model, pairs, config, vocabularies, args, seed):
    train, optimizer, schedule = config["train"], config["optimizer"], config["schedule"]
    # The lengths of normalised weights have axes of one number.
    is_matrix = lambda p: p.dim() >= 2 and p.numel() > len(p)
    matrices = [p for p in model.parameters() if is_matrix(p)]
    vectors = [p for p in model.parameters() if not is_matrix(p)]
    adam = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": optimizer.get("weight_decay", 0.01)},
         {"params": vectors, "weight_decay": 0.0}],
        lr=optimizer["lr"], betas=(optimizer.get("beta1", 0.9), optimizer.get("beta2", 0.999)),
        eps=optimizer.get("eps", 1e-6), fused=True)
    steps, clip = train["steps"], optimizer.get("clip_norm", 1.0)
    last = min(args.steps or steps, steps)
    mean, batches = Mean(config.get("average"), model), iter(Buckets(pairs, train, seed))
    bf16 = torch.autocast("cpu", torch.bfloat16, enabled=train.get("precision") == "bf16")
    seconds, tokens, step = 0.0, 0, 0
    model.train()
    while step < last and (args.minutes is None or seconds < 60 * args.minutes):
        begin = time.perf_counter()
        step += 1
        for group in adam.param_groups:
            group["lr"] = optimizer["lr"] * rate(schedule, step, steps)
        micro = [next(batches) for _ in range(train.get("accumulate", 1))]
        n_targets = sum(len(target) for batch in micro for _, target in batch)
        adam.zero_grad()
        for batch in micro:
            with bf16:
                loss, _ = losses(model, batch, vocabularies, train.get("label_smoothing", 0.0))
            (loss / n_targets).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        adam.step()
        took = time.perf_counter() - begin
        n_tokens = sum(len(source) + len(target) for batch in micro for source, target in batch)
        seconds, tokens = seconds + took, tokens + n_tokens
        mean.update(step, step == last)
        if step % 50 == 0:
            print(f"step {step}/{last} · loss {loss.item() / max(sum(len(t) for _, t in batch), 1):.3f} · "
                  f"{tokens / seconds:.0f} tokens/s", flush=True)
    mean.put()
    return {"seconds": round(seconds, 3), "steps": step, "tokens": tokens, "per_s": round(tokens / seconds, 1),
            "ms": round(seconds / step * 1e3, 2)}


@torch.no_grad()
def held_out(model, pairs, vocabularies):
    model.eval()
    loss = n = 0.0
    for start in range(0, len(pairs), 32):
        batch_loss, n_tokens = losses(model, pairs[start:start + 32], vocabularies, 0.0)
        loss, n = loss + batch_loss.item(), n + n_tokens.item()
    return {"held_out_loss": round(loss / n, 4), "perplexity": round(math.exp(loss / n), 4)}


@torch.no_grad()
def beam_search(model, source, vocabularies, beams, penalty, limit):
    """The best hypothesis of each source: ids without `</s>`. A source ends with as many finished hypotheses as beams,
    if no open one can be better."""
    n, eos = len(source), vocabularies.eos
    state = model.select(model.begin(source), torch.arange(n).repeat_interleave(beams)) \
        if not isinstance(model, Transformer) else expanded(model, source, beams)
    scores = torch.full((n, beams), -math.inf)
    scores[:, 0] = 0.0
    tokens, written = torch.full((n * beams,), vocabularies.start), torch.empty(n * beams, 0, dtype=torch.long)
    finished, open_sources = [[] for _ in range(n)], list(range(n))
    for length in range(1, limit + 1):
        logits = model.step(tokens, state)
        logits[:, vocabularies.pad] = -math.inf
        total = scores[..., None] + logits.log_softmax(-1).view(len(open_sources), beams, -1)
        size = total.shape[-1]
        best, places = total.flatten(1).topk(2 * beams)
        rows, nexts, kept_scores, still = [], [], [], []
        for row, place in enumerate(open_sources):
            kept = []
            for rank, (score, flat) in enumerate(zip(best[row].tolist(), places[row].tolist())):
                beam, token = divmod(flat, size)
                at = row * beams + beam
                if token == eos:
                    if rank < beams:
                        finished[place].append((score / length ** penalty, written[at].tolist()))
                elif len(kept) < beams:
                    kept.append((score, at, token))
            worst = sorted((score for score, _ in finished[place]), reverse=True)[beams - 1:beams]
            if worst and worst[0] >= kept[0][0] / length ** penalty:
                continue
            still.append(place)
            kept_scores.append([score for score, _, _ in kept])
            rows += [at for _, at, _ in kept]
            nexts += [token for _, _, token in kept]
        if not still:
            break
        rows, tokens = torch.tensor(rows), torch.tensor(nexts)
        state, open_sources, scores = model.select(state, rows), still, torch.tensor(kept_scores)
        written = torch.cat([written[rows], tokens[:, None]], 1)
    else:
        for row, place in enumerate(open_sources):
            finished[place].append((scores[row, 0].item() / limit ** penalty, written[row * beams].tolist()))
    return [max(hypotheses)[1] for hypotheses in finished]


def expanded(model, source, beams):
    """A Transformer's state for every beam; there are no keys and values of targets yet."""
    state, rows = model.begin(source), torch.arange(len(source)).repeat_interleave(beams)
    return state | {"memory": [[part[rows] for part in pair] for pair in state["memory"]],
                    "mask": state["mask"][rows]}


def translate(model, lines, vocabularies, beams, penalty, batch=32):
    model.eval()
    sources = list(vocabularies.encode(vocabularies.source, lines))
    order, outputs = sorted(range(len(lines)), key=lambda i: len(sources[i])), [""] * len(lines)
    for start in range(0, len(order), batch):
        places = order[start:start + batch]
        source = padded([sources[i] for i in places], vocabularies.pad)
        found = beam_search(model, source, vocabularies, beams, penalty, 2 * source.shape[1] + 10)
        for place, text in zip(places, vocabularies.target.decode_batch(found)):
            outputs[place] = text if lines[place].strip() else ""
    return outputs


def main():
    args = arguments()
    config = read_config(args.config, args.set)
    seed = args.seed if args.seed is not None else config.get("run", {}).get("seed", 42)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    torch.manual_seed(seed)
    vocabularies, parallel = Vocabularies(args.tokenizer), config["parallel"]
    kinds = {"transformer": Transformer, "recurrent": Recurrent, "convolutional": Convolutional}
    if config["model"]["kind"] not in kinds:
        raise SystemExit(f"{args.config}: the peer has no model of kind {config['model']['kind']}")
    settings = config["model"] | {"max_positions": parallel.get("max_len", 256)}
    model = kinds[settings["kind"]](settings, vocabularies)
    pairs = read_pairs(parallel["train"], vocabularies, parallel.get("max_len", 256))
    measured = train(model, pairs, config, vocabularies, args, seed)
    measured["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    os.makedirs(args.out, exist_ok=True)
    torch.save(model.state_dict(), os.path.join(args.out, "model.pt"))
    if args.held_out and parallel.get("dev"):
        measured |= held_out(model, read_pairs(parallel["dev"], vocabularies, 1024), vocabularies)
    if args.translate:
        with open(args.translate, encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line in file]
        begin = time.perf_counter()
        outputs = translate(model, lines, vocabularies, args.beams, args.length_penalty)
        measured["translate_seconds"] = round(time.perf_counter() - begin, 3)
        with open(os.path.join(args.out, "hypotheses.txt"), "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in outputs)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps(measured | {"peak_mb": round(peak / 1e3, 1)}))


if __name__ == "__main__":
    main()
