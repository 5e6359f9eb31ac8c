"""Times the Python package `tokenizers`: a task a line in, seconds out.

Tasks, their words separated by tabs: `load FILE`, `ids FILE TEXT`, `encode FILE TEXT`,
`wordpiece TEXT SIZE`, `bpe TEXT SIZE`.
"""

import os
import sys
import time

import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

texts = {}


def lines(path):
    if path not in texts:
        with open(path, encoding="utf-8") as file:
            texts[path] = file.read().split("\n")[:-1]
    return texts[path]


def train(tokenizer, trainer, text):
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    start = time.perf_counter()
    tokenizer.train_from_iterator(text, trainer)
    seconds = time.perf_counter() - start
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return seconds


def run(task, *words):
    if task == "load":
        start = time.process_time()
        Tokenizer.from_file(words[0])
        return time.process_time() - start
    if task in ("ids", "encode"):
        tokenizer, text = Tokenizer.from_file(words[0]), lines(words[1])
        fast = task == "ids" and hasattr(tokenizer, "encode_batch_fast")
        encode = tokenizer.encode_batch_fast if fast else tokenizer.encode_batch
        start = time.process_time()
        for at in range(0, len(text), 1000):
            encode(text[at : at + 1000], add_special_tokens=task == "encode")
        return time.process_time() - start
    text, size = lines(words[0]), int(words[1])
    if task == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
    return train(tokenizer, trainer, text)


print(tokenizers.__version__, flush=True)
for line in sys.stdin:
    print(run(*line.rstrip("\n").split("\t")), flush=True)
