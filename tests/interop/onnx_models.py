"""Compares exports to ONNX, run by ONNX Runtime, with transformers and with cloze itself.

    python tests/interop/onnx_models.py target/release/cloze [family|family:head ...]
    python tests/interop/onnx_models.py target/release/cloze --minilm FOLDER

Needs onnxruntime and onnx; the second form optimum-onnx and sentence-transformers too. Families that the installed
transformers has no class for are left out: NomicBERT and GTE came with version 5.

The first form makes a small random model of each family and head, exports it, checks the file with onnx.checker, and
computes batches of 1, 3 and 32 sequences of 1 to 512 tokens with padding. It prints the greatest differences of the
tokens' outputs from transformers', relative to the greatest of them, and of pooled states and of classes' probabilities
from those of `cloze embed` and `cloze predict`. The second form does the same with a real model and with the loaders of
optimum and sentence-transformers.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

VOCAB, POSITIONS = 120, 512
BATCHES, LENGTHS = (1, 3, 32), (1, 2, 7, 64, 200, 512)
SIZES = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
             max_position_embeddings=POSITIONS, pad_token_id=0)
ENDS = dict(bos_token_id=2, eos_token_id=3)
ROBERTA = SIZES | dict(type_vocab_size=1, max_position_embeddings=POSITIONS + 1, **ENDS)
DEBERTA = SIZES | dict(relative_attention=True, pooler_hidden_size=32)
T5 = dict(vocab_size=VOCAB, d_model=32, d_kv=6, d_ff=48, num_heads=4, num_layers=3, n_positions=POSITIONS, pad_token_id=0)
LLAMA = SIZES | dict(num_key_value_heads=2, **ENDS)
ALL = {"encoder": "Model", "mlm": "ForMaskedLM", "sequence": "ForSequenceClassification",
       "tokens": "ForTokenClassification", "spans": "ForQuestionAnswering", "choice": "ForMultipleChoice"}
FAMILIES = {
    "bert": ("Bert", SIZES),
    "roberta": ("Roberta", ROBERTA),
    "xlm-roberta": ("XLMRoberta", ROBERTA),
    "camembert": ("Camembert", ROBERTA),
    "distilbert": ("DistilBert", dict(vocab_size=VOCAB, dim=32, n_layers=3, n_heads=4, hidden_dim=48,
                                      max_position_embeddings=POSITIONS)),
    "albert": ("Albert", SIZES | dict(embedding_size=16)),
    "electra": ("Electra", SIZES | dict(embedding_size=16)),
    "mpnet": ("MPNet", SIZES | dict(max_position_embeddings=POSITIONS + 2, pad_token_id=1, bos_token_id=2, eos_token_id=3)),
    "deberta-v2": ("DebertaV2", DEBERTA | dict(pos_att_type=["c2p", "p2c"], type_vocab_size=2)),
    "deberta-v3": ("DebertaV2", DEBERTA | dict(
        pos_att_type="p2c|c2p", position_buckets=64, share_att_key=True, norm_rel_ebd="layer_norm",
        position_biased_input=False, type_vocab_size=0, conv_kernel_size=3)),
    "modernbert": ("ModernBert", SIZES | dict(
        local_attention=16, reference_compile=False, cls_token_id=2, sep_token_id=3, **ENDS)),
    "nomic": ("NomicBert", SIZES | dict(rope_parameters={"rope_type": "default", "rope_theta": 1000.0})),
    "gte": ("Gte", SIZES | dict(rope_parameters={"rope_type": "default", "rope_theta": 20000.0})),
    "xlm": ("XLM", dict(vocab_size=VOCAB, emb_dim=32, n_layers=3, n_heads=4, n_langs=1, max_position_embeddings=POSITIONS,
                        pad_index=0, pad_token_id=0)),
    "xlnet": ("XLNet", dict(vocab_size=VOCAB, d_model=32, n_layer=3, n_head=4, d_inner=48, pad_token_id=0)),
    "t5": ("T5", T5),
    "mt5": ("MT5", T5 | dict(feed_forward_proj="gated-gelu")),
    "gpt2": ("GPT2", dict(vocab_size=VOCAB, n_embd=32, n_layer=3, n_head=4, n_positions=POSITIONS, pad_token_id=0, **ENDS)),
    "llama": ("Llama", LLAMA),
    "mistral": ("Mistral", LLAMA | dict(sliding_window=9)),
    "qwen2": ("Qwen2", LLAMA),
}
SOME = {family: ["encoder", "tokens"] for family in ("t5", "mt5")}
SOME |= {family: ["encoder", "sequence", "tokens"] for family in ("gpt2", "llama", "mistral", "qwen2")}
SOME |= {"xlnet": ["encoder", "sequence", "tokens", "spans", "choice"],
         "xlm": ["encoder", "mlm", "sequence", "tokens", "spans", "choice"]}
NAMES = {("xlnet", "spans"): "ForQuestionAnsweringSimple", ("xlm", "mlm"): "WithLMHeadModel",
         ("xlm", "spans"): "ForQuestionAnsweringSimple", ("t5", "encoder"): "EncoderModel",
         ("mt5", "encoder"): "EncoderModel"}


def tokenizer(pad):
    """A vocabulary of words of one token each."""
    first = ["[PAD]", "[UNK]"] if pad == 0 else ["[UNK]", "[PAD]"]
    pieces = first + ["[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(VOCAB - 5)]
    made = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=POSITIONS,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"])


def cloze(program, *words, lines=None):
    text = None if lines is None else "".join(line + "\n" for line in lines)
    done = subprocess.run([program, *words], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def batch(size, longest, rng, left, pad):
    """Ids, types and mask of sequences of 1 to `longest` tokens, of which one is the longest."""
    lengths = [longest] + [int(rng.integers(1, longest + 1)) for _ in range(size - 1)]
    ids, types, mask = (np.full((size, longest), value, np.int64) for value in (pad, 0, 0))
    for row, n in enumerate(lengths):
        cells = slice(longest - n, longest) if left else slice(0, n)
        ids[row, cells] = rng.integers(5, VOCAB, n)
        types[row, cells] = np.arange(n) > n // 2
        mask[row, cells] = 1
    return ids, types, mask


def compare(program, family, head, folder):
    prefix, sizes = FAMILIES[family]
    config_class = getattr(transformers, f"{prefix}Config", None)
    model_class = getattr(transformers, prefix + NAMES.get((family, head), ALL[head]), None)
    if config_class is None or model_class is None:
        return None
    # The identifier of padding, from which some classes tell positions.
    pad = sizes.get("pad_token_id", 0)
    torch.manual_seed(7)
    model = model_class(config_class(**sizes, **({"num_labels": 3} if head in ("sequence", "tokens") else {}))).eval()
    with torch.no_grad():  # norms and biases that do something
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder / "model")
    tokenizer(pad).save_pretrained(folder / "model")
    cloze(program, "export", "onnx", "--model", str(folder / "model"), "--out", str(folder / "onnx"))
    path = str(folder / "onnx" / "model.onnx")
    onnx.checker.check_model(path, full_check=True)
    run = session(path)
    names = [given.name for given in run.get_inputs()]
    worst, rng = 0.0, np.random.default_rng(3)
    for size in BATCHES:
        for longest in LENGTHS:
            ids, types, mask = batch(size, longest, rng, family == "xlnet", pad)
            given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
            given = {name: given[name] for name in names}
            if head == "choice":
                given = {name: np.stack([values, values[::-1]], 1) for name, values in given.items()}
            found = run.run(None, given)
            with torch.no_grad():
                output = model(**{name: torch.from_numpy(values.copy()) for name, values in given.items()})
            wanted = ([output.start_logits, output.end_logits] if head == "spans" else
                      [output.last_hidden_state] if head == "encoder" else [output.logits])
            for a, b in zip(found, wanted):
                b = b.numpy()
                assert a.shape == b.shape and np.isfinite(a).all(), (family, head, a.shape, b.shape)
                if head not in ("sequence", "choice"):
                    a, b = a[mask == 1], b[mask == 1]
                worst = max(worst, float(np.abs(a - b).max() / np.abs(b).max()))
    own = None
    texts = [" ".join(f"w{rng.integers(0, VOCAB - 5)}" for _ in range(n)) for n in (1, 3, 30, 100, 200, 400)]
    if head in ("encoder", "sequence"):
        encoded = tokenizer(pad)(texts, padding=True, return_tensors="np")
        found = run.run(None, {name: encoded[name].astype(np.int64) for name in names})[0]
        if head == "encoder":
            weights = encoded["attention_mask"][:, :, None]
            pooled = (found * weights).sum(1) / weights.sum(1)
            lines = cloze(program, "embed", "--model", str(folder / "model"), "--pooling", "mean", lines=texts)
            vectors = np.array([json.loads(line) if line[0] == "[" else json.loads(line)["embedding"]
                                for line in lines.splitlines()])
            own = float(np.abs(pooled - vectors).max() / np.abs(vectors).max())
        else:
            lines = cloze(program, "predict", "--model", str(folder / "model"), lines=[json.dumps(text) for text in texts])
            scores = np.array([[json.loads(line)["scores"][f"LABEL_{i}"] for i in range(3)] for line in lines.splitlines()])
            powers = np.exp(found - found.max(1, keepdims=True))
            own = float(np.abs(powers / powers.sum(1, keepdims=True) - scores).max())
    return worst, own


def small(program, families):
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}")
    print("| family | head | from transformers | from cloze |\n| --- | --- | --- | --- |")
    most = 0.0
    for name in families or FAMILIES:
        family, _, only = name.partition(":")
        for head in [only] if only else SOME.get(family, ALL):
            with tempfile.TemporaryDirectory() as folder:
                found = compare(program, family, head, pathlib.Path(folder))
            if found is None:
                print(f"| {family} | {head} | no class in this transformers | |")
                continue
            worst, own = found
            most = max(most, worst, own or 0.0)
            print(f"| {family} | {head} | {worst:.1e} | {'' if own is None else format(own, '.1e')} |", flush=True)
    print(f"the greatest difference: {most:.1e}")
    assert most < 1e-4, most


def minilm(program, folder):
    from optimum.onnxruntime import ORTModelForFeatureExtraction
    from sentence_transformers import SentenceTransformer

    texts = ["The old man sat by the sea.", "A sailor rests.", "Prices rose by four percent in May.", "", "word " * 400]
    with tempfile.TemporaryDirectory() as work:
        out = str(pathlib.Path(work) / "minilm-onnx")
        begin = time.perf_counter()
        cloze(program, "export", "onnx", "--model", folder, "--out", out)
        print(f"exported in {time.perf_counter() - begin:.2f} s")
        onnx.checker.check_model(out + "/onnx/model.onnx", full_check=True)
        reference = SentenceTransformer(folder, device="cpu")
        wanted = reference.encode(texts)
        loaded = SentenceTransformer(out, backend="onnx", device="cpu")
        found = loaded.encode(texts)
        cosines = (wanted * found).sum(1) / np.linalg.norm(wanted, axis=1) / np.linalg.norm(found, axis=1)
        print(f"SentenceTransformer(backend='onnx'): least cosine {cosines.min():.9f}, "
              f"greatest difference {np.abs(wanted - found).max():.1e}")
        run = session(out + "/onnx/model.onnx")
        encoded = reference.tokenizer(texts, padding=True, truncation=True, max_length=reference.max_seq_length, return_tensors="np")
        states, embeddings = run.run(None, {given.name: encoded[given.name].astype(np.int64) for given in run.get_inputs()})
        print(f"sentence_embedding: greatest difference {np.abs(wanted - embeddings).max():.1e}")
        lines = cloze(program, "embed", "--model", folder, lines=texts).splitlines()
        own = np.array([json.loads(line) if line[0] == "[" else json.loads(line)["embedding"] for line in lines])
        print(f"against cloze embed: greatest difference {np.abs(own - embeddings).max():.1e}")
        model = ORTModelForFeatureExtraction.from_pretrained(out)
        with torch.no_grad():
            output = model(**reference.tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt"))
        print(f"ORTModelForFeatureExtraction: states differ by {np.abs(output.last_hidden_state.numpy() - states).max():.1e}")


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    if sys.argv[2:3] == ["--minilm"]:
        minilm(sys.argv[1], sys.argv[3])
    else:
        small(sys.argv[1], sys.argv[2:])
