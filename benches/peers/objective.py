"""A step of an objective with transformers' classes, as `cargo xtask bench steps` runs it beside ours.

    python benches/peers/objective.py electra|xlnet|bart STEPS f32|bf16

The classes as their users run them, at the sizes of `configs/electra-mini-corpus.toml`, `xlnet-mini-corpus.toml` and
`bart-mini-corpus.toml`, with the batch of `crates/trainer/benches/objective_step.rs`, fused AdamW and clipping. ELECTRA's
generator and discriminator share their embeddings, and of the generator's logits only those of predicted tokens go into
the loss and the samples. XLNet's memory is computed in the step, without gradients, as ours is. `bf16` is torch's autocast.

Prints one JSON line with the median and the process's peak memory; a rate counts tokens of the texts. Threads are
torch's default; set OMP_NUM_THREADS to choose.
"""

import json
import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
import transformers
from torch import nn

VOCAB, WIDTH, LAYERS, HEADS, D_FF, STD = 8192, 256, 4, 4, 1024, 0.04
objective, steps, precision = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.manual_seed(0)


def pieces(n, factor=1, offset=0):
    return 5 + (torch.arange(n) * factor + offset) * 7919 % (VOCAB - 5)


def electra(batch=64, length=128):
    sizes = dict(vocab_size=VOCAB, embedding_size=WIDTH, num_hidden_layers=LAYERS, max_position_embeddings=length,
                 hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=STD)
    discriminator = transformers.ElectraForPreTraining(transformers.ElectraConfig(
        **sizes, hidden_size=WIDTH, num_attention_heads=HEADS, intermediate_size=D_FF))
    generator = transformers.ElectraForMaskedLM(transformers.ElectraConfig(
        **sizes, hidden_size=WIDTH // 4, num_attention_heads=HEADS // 4, intermediate_size=D_FF // 4))
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = generator.electra.embeddings.word_embeddings.weight
    original = pieces(batch * length)
    n = batch * length * 15 // 100
    predicted = torch.arange(n) * (batch * length) // n
    labels = original[predicted]
    masked = original.clone()
    masked[predicted[torch.arange(n) % 20 < 17]] = 4
    shape = (batch, length)
    attention_mask = torch.ones(shape, dtype=torch.long)

    def loss():
        logits = generator(masked.view(shape), attention_mask=attention_mask).logits.flatten(0, 1)[predicted]
        with torch.no_grad():
            # The greatest of log-probabilities with Gumbel noise is a sample.
            sampled = (logits - torch.empty_like(logits).exponential_().log()).argmax(-1)
        replaced = original.clone()
        replaced[predicted] = sampled
        found = discriminator(replaced.view(shape), attention_mask=attention_mask,
                              labels=(replaced != original).long().view(shape))
        return F.cross_entropy(logits, labels) + 50.0 * found.loss

    return nn.ModuleList([discriminator, generator]), loss, batch * length


def xlnet(batch=64, length=96, memory=32):
    model = transformers.XLNetLMHeadModel(transformers.XLNetConfig(
        vocab_size=VOCAB, d_model=WIDTH, n_layer=LAYERS, n_head=HEADS, d_inner=D_FF, dropout=0.0,
        initializer_range=STD, mem_len=memory))
    before, ids = pieces(batch * memory, 3, 1).view(batch, memory), pieces(batch * length).view(batch, length)
    n = length // 6
    row, place = torch.arange(batch)[:, None], torch.arange(length)[None, :]
    predicted = place % 6 == row % 6
    order = torch.where(predicted, (place // 6 * 7 + row) % n, 0)
    # Tokens that are not predicted are seen by all, and see each other alone.
    perm_mask = ((order[:, :, None] <= order[:, None, :]) | ~predicted[:, :, None]) & predicted[:, None, :]
    targets = predicted.nonzero()[:, 1].view(batch, n)
    target_mapping = F.one_hot(targets, length).float()
    labels = ids.gather(1, targets)

    def loss():
        with torch.no_grad():
            mems = model.transformer(before, use_mems=True).mems
        return model(ids, perm_mask=perm_mask.float(), target_mapping=target_mapping, mems=mems, labels=labels).loss

    return model, loss, batch * length


def bart(batch=32, length=128):
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(
        vocab_size=VOCAB, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=D_FF, decoder_ffn_dim=D_FF,
        max_position_embeddings=length, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, init_std=STD,
        pad_token_id=0, bos_token_id=2, eos_token_id=1, decoder_start_token_id=1, forced_eos_token_id=None))
    target = pieces(batch * length).view(batch, length)
    n_masked = length * 3 // 10
    lengths = [length - n_masked + n_masked // 3 + row % 5 - 2 for row in range(batch)]
    source = torch.zeros(batch, max(lengths), dtype=torch.long)
    for row, n in enumerate(lengths):
        source[row, :n] = 4
        source[row, :length - n_masked] = target[row, :length - n_masked]
    attention_mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()

    def loss():
        return model(source, attention_mask=attention_mask, labels=target).loss

    return model, loss, batch * length


model, forward, n_tokens = {"electra": electra, "xlnet": xlnet, "bart": bart}[objective]()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=True)
times = []
for step in range(steps + 2):
    start = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = forward()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step >= 2:
        times.append((time.perf_counter() - start) * 1e3)
median = statistics.median(times)
print(json.dumps({"ms": round(median, 2), "per_s": round(n_tokens / median * 1e3, 1),
                  "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
                  "loss": loss.item()}))
