"""Compares exports to ONNX, run by ONNX Runtime, with transformers and with cloze itself.

    python tests/interop/onnx_models.py target/release/cloze [family|family:head ...]
    python tests/interop/onnx_models.py target/release/cloze --minilm FOLDER
    python tests/interop/onnx_models.py target/release/cloze --quantised [FOLDER]

Needs onnxruntime and onnx; the second form optimum-onnx and sentence-transformers too. Families that the installed
transformers has no class for are left out: NomicBERT and GTE came with version 5.

The first form makes a small random model of each family and head, exports it, checks the file with onnx.checker, and
computes batches of 1, 3 and 32 sequences of 1 to 512 tokens with padding. It prints the greatest differences of the
tokens' outputs from transformers', relative to the greatest of them, and of pooled states and of classes' probabilities
from those of `cloze embed` and `cloze predict`. The second form does the same with a real model and with the loaders of
optimum and sentence-transformers. The third form exports what `cloze quantize` makes of a small random encoder and of a
classifier, or of a sentence encoder in FOLDER, and compares batches of 1, 3 and 32 texts of 1 to 512 tokens with `cloze embed`
and `cloze predict` of the same folder: as the export is, and with ONNX Runtime's 8-bit rounding of tokens taken out.
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


SETTINGS = {
    "int8": ["--weights", "int8"],
    "int8, tables": ["--weights", "int8", "--tables"],
    "int8, ranges": ["--weights", "int8", "--tables", "--ranges", "mse"],
    "int8, ranges, smooth": ["--weights", "int8", "--ranges", "mse", "--smooth"],
    "int8, smooth": ["--weights", "int8", "--smooth"],
    "q8_0": ["--weights", "q8_0"],
    "q8_0, tables": ["--weights", "q8_0", "--tables"],
    "q8_0, ranges": ["--weights", "q8_0", "--ranges", "minmax"],
    "q4_0": ["--weights", "q4_0"],
    "q4_0, tables": ["--weights", "q4_0", "--tables"],
}


def vectors(lines):
    lines = [json.loads(line) for line in lines.splitlines()]
    return np.array([line if isinstance(line, list) else line["embedding"] for line in lines])


def least_cosine(a, b):
    return float(((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)).min())


def encoded_by(tokenizer, texts, session, longest):
    encoded = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="np")
    names = [given.name for given in session.get_inputs()]
    return {name: encoded[name].astype(np.int64) for name in names}


def answers(run, given, head):
    """A row for each text, as cloze writes it."""
    found = run.run(None, given)
    if head == "sequence":
        powers = np.exp(found[0] - found[0].max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
    if head == "sentence":
        return found[1]
    weights = given["attention_mask"][:, :, None]
    return (found[0] * weights).sum(1) / weights.sum(1)


def in_floats(path):
    """The same file with tokens that are not rounded, for whoever wants to see the weights alone."""
    model = onnx.load(path)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 1
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def quantised(program, folder=None):
    print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}")
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        if folder:
            cases = {"sentence": pathlib.Path(folder)}
            words = "the old man sat by a sea and looked at ships that came in from far away".split()
            wanted, lengths, longest = words, (1, 2, 7, 64, 200), 256
        else:
            cases = {}
            wanted, lengths, longest = [f"w{i}" for i in range(VOCAB - 5)], (1, 2, 7, 64, 200, 510), POSITIONS
            for head in ("encoder", "sequence"):
                sizes = SIZES | dict(hidden_size=64, intermediate_size=96)
                torch.manual_seed(7)
                model_class = getattr(transformers, "Bert" + ALL[head])
                model = model_class(transformers.BertConfig(**sizes, num_labels=3)).eval()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.add_(torch.randn_like(parameter) * 0.05)
                model.save_pretrained(work / head)
                tokenizer(0).save_pretrained(work / head)
                cases[head] = work / head
        text = lambda n: " ".join(rng.choice(wanted, n))
        calibration = work / "texts.txt"
        calibration.write_text("".join(text(int(rng.integers(1, 60))) + "\n" for _ in range(400)))
        texts = [text(n if i == 0 else int(rng.integers(1, n + 1))) for n in lengths for i in range(32)]
        print("| model | settings | MB | from cloze | least cosine | in floats | least cosine | alone and in a batch |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for head, model in cases.items():
            for name, words in SETTINGS.items():
                place = work / (head + "-" + name.replace(", ", "-"))
                more = ["--calibrate", str(calibration)] if {"--ranges", "--smooth"} & set(words) else []
                cloze(program, "quantize", "--model", str(model), *words, *more, "--out", str(place))
                out = pathlib.Path(str(place) + "-onnx")
                cloze(program, "export", "onnx", "--model", str(place), "--out", str(out))
                assert "quantization_config" not in json.loads((out / "config.json").read_text())
                path = str(out / ("onnx/model.onnx" if head == "sentence" else "model.onnx"))
                onnx.checker.check_model(path)
                pieces = transformers.AutoTokenizer.from_pretrained(model)
                if head == "sequence":
                    lines = cloze(program, "predict", "--model", str(place), lines=[json.dumps(text) for text in texts])
                    own = np.array([[json.loads(line)["scores"][f"LABEL_{i}"] for i in range(3)]
                                    for line in lines.splitlines()])
                else:
                    pooling = [] if head == "sentence" else ["--pooling", "mean"]
                    own = vectors(cloze(program, "embed", "--model", str(place), *pooling, lines=texts))
                found = {}
                for kind, run in (("as it is", session(path)), ("in floats", in_floats(path))):
                    for size in BATCHES:
                        if size == 1 and kind == "in floats":
                            continue
                        rows = []
                        for first in range(0, len(texts), 32):
                            some = texts[first:first + 32]
                            for at in range(0, 32, size):
                                rows.append(answers(run, encoded_by(pieces, some[at:at + size], run, longest), head))
                        found[kind, size] = np.concatenate(rows)
                        assert np.isfinite(found[kind, size]).all(), (head, name)
                scale = np.abs(own).max()
                off = lambda a, b: f"{np.abs(a - b).max() / scale:.1e}"
                whole, floats = found["as it is", 32], found["in floats", 32]
                alone = max(float(np.abs(found["as it is", size] - whole).max() / scale) for size in (1, 3))
                megabytes = pathlib.Path(path).stat().st_size / 1e6
                print(f"| {head} | {name} | {megabytes:.1f} | {off(whole, own)} | {least_cosine(whole, own):.6f} | "
                      f"{off(floats, own)} | {least_cosine(floats, own):.6f} | {alone:.1e} |", flush=True)
                assert least_cosine(whole, own) > 0.98, (head, name)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    if sys.argv[2:3] == ["--minilm"]:
        minilm(sys.argv[1], sys.argv[3])
    elif sys.argv[2:3] == ["--quantised"]:
        quantised(sys.argv[1], *sys.argv[3:4])
    else:
        small(sys.argv[1], sys.argv[2:])
