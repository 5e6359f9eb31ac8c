"""What generates texts beside ours: transformers' `generate`, CTranslate2 and llama.cpp, whole processes, from files to lines.

    python benches/peers/generate.py transformers FOLDER FILE [--beams N] [--batch N] [--precision f32|bf16]
    python benches/peers/generate.py convert FOLDER OUT [--precision f32|int8]
    python benches/peers/generate.py ctranslate2 FOLDER FILE --converted OUT [--beams N] [--batch N]
    python benches/peers/generate.py make-gpt2|make-llama FOLDER --tokenizer FOLDER [--layers N] [--width N]
    python benches/peers/generate.py gpt2 FOLDER [--new N] [--prompt TEXT] [--precision f32|bf16|int8] [--converted OUT]
    python benches/peers/generate.py llama.cpp FILE.gguf [--new N] [--prompt TEXT]

`transformers` and `ctranslate2` print a translation of each line of FILE by a folder of Marian's architecture with a
`tokenizer.json`; sorted batches of so many lines. `convert` writes the folder for CTranslate2, with its weights as they
are or in 8 bits. `make-gpt2` and `make-llama` write a model of random weights with GPT-2's tokenizer, small unless told
otherwise. `gpt2` lets one continue a prompt greedily, by transformers, or in int8 by CTranslate2, and `llama.cpp` from a
GGUF file; they print one JSON line with the tokens a second, the prompt's not counted, after one round that is not measured.

    pip install torch==2.9.0 transformers==4.57.6 ctranslate2 xllamacpp
"""

import argparse
import json
import os
import resource
import sys
import time

THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=["transformers", "convert", "ctranslate2", "make-gpt2", "make-llama", "gpt2",
                                         "llama.cpp"])
    parser.add_argument("folder")
    parser.add_argument("file", nargs="?", help="lines to translate, or where `convert` writes to")
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length-penalty", type=float, default=1.0)
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16", "int8"])
    parser.add_argument("--converted", metavar="FOLDER")
    parser.add_argument("--tokenizer", metavar="FOLDER", help="with GPT-2's vocab.json and merges.txt")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--prompt", default="The history of the world is")
    return parser.parse_args()


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def tokenizer_of(folder):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def most_tokens(source):
    """How long a translation may become."""
    return 2 * source + 10


def translate_by_transformers(args):
    import torch
    from transformers import MarianMTModel

    torch.set_num_threads(THREADS)
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    model = MarianMTModel.from_pretrained(args.folder, dtype=dtype).eval()
    tokenizer, lines, pad = tokenizer_of(args.folder), read_lines(args.file), model.config.pad_token_id
    ids = [encoding.ids for encoding in tokenizer.encode_batch(lines)]
    order, outputs = sorted(range(len(lines)), key=lambda i: len(ids[i])), [""] * len(lines)
    for start in range(0, len(order), args.batch):
        places = order[start:start + args.batch]
        longest = max(len(ids[i]) for i in places)
        rows = torch.tensor([ids[i] + [pad] * (longest - len(ids[i])) for i in places])
        with torch.inference_mode():
            found = model.generate(
                input_ids=rows, attention_mask=(rows != pad).long(), num_beams=args.beams, do_sample=False,
                length_penalty=args.length_penalty, max_new_tokens=most_tokens(longest), max_length=None)
        for place, text in zip(places, tokenizer.decode_batch(found.tolist())):
            outputs[place] = text
    sys.stdout.writelines(line + "\n" for line in outputs)


def convert(args):
    """CTranslate2's converter knows the Marian of OPUS-MT, whose padding is the last piece and whose decoder begins
    with zeros. This one takes vocabulary, padding and first piece from the folder."""
    from ctranslate2 import converters
    from ctranslate2.converters import transformers as loaders
    from transformers import PreTrainedTokenizerFast

    class Marian(loaders.MarianMTLoader):
        def get_model_spec(self, model):
            model.config.normalize_before = model.config.normalize_embedding = False
            return loaders.BartLoader.get_model_spec(self, model)

        def set_decoder(self, spec, decoder):
            loaders.BartLoader.set_decoder(self, spec, decoder)

        def get_vocabulary(self, model, tokenizer):
            return [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]

        def set_vocabulary(self, spec, tokens):
            spec.register_source_vocabulary(tokens)
            spec.register_target_vocabulary(tokens)

        def set_config(self, config, model, tokenizer):
            piece = tokenizer.id_to_token
            config.eos_token, config.bos_token = piece(model.config.eos_token_id), piece(model.config.eos_token_id)
            config.unk_token = next(filter(lambda name: tokenizer.token_to_id(name) is not None,
                                           ("<unk>", "[UNK]", "<pad>")))
            config.decoder_start_token = piece(model.config.decoder_start_token_id)

    class Converter(converters.TransformersConverter):
        def load_tokenizer(self, tokenizer_class, name, **settings):
            if model_type == "marian":
                return tokenizer_of(name)
            end = "<|endoftext|>"
            return PreTrainedTokenizerFast(tokenizer_file=os.path.join(name, "tokenizer.json"), bos_token=end,
                                           eos_token=end, unk_token=end)

    with open(os.path.join(args.folder, "config.json"), encoding="utf-8") as file:
        model_type = json.load(file)["model_type"]
    loaders._MODEL_LOADERS["MarianConfig"] = Marian()
    Converter(args.folder).convert(args.file, quantization={"f32": "float32", "int8": "int8"}[args.precision], force=True)


def translate_by_ctranslate2(args):
    import ctranslate2

    translator = ctranslate2.Translator(args.converted, device="cpu", inter_threads=1, intra_threads=THREADS,
                                        compute_type="default")
    tokenizer, lines = tokenizer_of(args.folder), read_lines(args.file)
    tokens = [encoding.tokens for encoding in tokenizer.encode_batch(lines)]
    found = translator.translate_batch(
        tokens, beam_size=args.beams, max_batch_size=args.batch, batch_type="examples",
        length_penalty=args.length_penalty, max_input_length=0,
        max_decoding_length=most_tokens(max(map(len, tokens))))
    ids = [[tokenizer.token_to_id(token) for token in result.hypotheses[0]] for result in found]
    sys.stdout.writelines(text + "\n" for text in tokenizer.decode_batch(ids))


def make_gpt2(args):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=args.layers, n_embd=args.width, n_head=max(args.width // 64, 1))
    GPT2LMHeadModel(config).save_pretrained(args.folder)
    save_tokenizer(args)


def make_llama(args):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=args.layers, hidden_size=args.width, intermediate_size=8 * args.width // 3 // 32 * 32,
        num_attention_heads=max(args.width // 64, 1), vocab_size=50257, max_position_embeddings=1024,
        bos_token_id=50256, eos_token_id=50256, tie_word_embeddings=True)
    LlamaForCausalLM(config).save_pretrained(args.folder)
    save_tokenizer(args)


def save_tokenizer(args):
    from tokenizers import ByteLevelBPETokenizer

    files = [os.path.join(args.tokenizer, name) for name in ("vocab.json", "merges.txt")]
    tokenizer = ByteLevelBPETokenizer(*files)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(os.path.join(args.folder, "tokenizer.json"))


def continue_by_gpt2(args):
    tokenizer = tokenizer_of(args.folder)
    prompt = tokenizer.encode(args.prompt).ids
    if args.precision == "int8":
        import ctranslate2

        generator = ctranslate2.Generator(args.converted, device="cpu", inter_threads=1, intra_threads=THREADS)
        pieces = [tokenizer.id_to_token(i) for i in prompt]

        def generate(n):
            generator.generate_batch([pieces], beam_size=1, sampling_topk=1, max_length=n, min_length=n,
                                     include_prompt_in_result=False)
    else:
        import torch
        from transformers import GPT2LMHeadModel

        torch.set_num_threads(THREADS)
        dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
        model = GPT2LMHeadModel.from_pretrained(args.folder, dtype=dtype).eval()
        ids = torch.tensor([prompt])

        def generate(n):
            with torch.inference_mode():
                found = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1,
                                       max_new_tokens=n, min_new_tokens=n, pad_token_id=0)
            assert found.shape[1] == len(prompt) + n

    generate(4)
    begin = time.perf_counter()
    generate(args.new)
    print_tokens(args, (time.perf_counter() - begin) / args.new * 1e3)


def continue_by_llama_cpp(args):
    """By the milliseconds that llama.cpp counts itself."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = args.folder
    params.n_ctx, params.n_parallel, params.verbosity = 512, 1, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    server = xllamacpp.Server(params)

    def generate(n):
        found = server.handle_completions({"prompt": args.prompt, "max_tokens": n, "temperature": 0,
                                           "ignore_eos": True, "cache_prompt": False})
        assert found["usage"]["completion_tokens"] == n
        return found["timings"]["predicted_per_token_ms"]

    generate(4)
    print_tokens(args, generate(args.new))


def print_tokens(args, ms):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"ms": round(ms, 3), "per_s": round(1e3 / ms, 2), "seconds": round(ms * args.new / 1e3, 3),
                      "tokens": args.new, "peak_mb": round(peak / 1e3, 1)}))


if __name__ == "__main__":
    args = arguments()
    {"transformers": translate_by_transformers, "convert": convert, "ctranslate2": translate_by_ctranslate2,
     "make-gpt2": make_gpt2, "make-llama": make_llama, "gpt2": continue_by_gpt2,
     "llama.cpp": continue_by_llama_cpp}[args.peer](args)
