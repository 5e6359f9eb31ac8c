"""Questions as transformers' `run_qa` has them: windows, the best answer, SQuAD's exact match and F1."""

import collections
import re
import string

import numpy as np


def windows(tokenizer, questions, max_len, stride):
    """The windows of all questions; each knows its question and the offsets of its context's tokens."""
    encoded = tokenizer([question["question"] for question in questions],
                        [question["context"] for question in questions], truncation="only_second",
                        max_length=max_len, stride=stride, return_overflowing_tokens=True,
                        return_offsets_mapping=True)
    found = []
    for i, place in enumerate(encoded["overflow_to_sample_mapping"]):
        ids, sequence = encoded["input_ids"][i], encoded.sequence_ids(i)
        offsets = [offset if of == 1 else None for offset, of in zip(encoded["offset_mapping"][i], sequence)]
        inputs = {key: encoded[key][i] for key in ("input_ids", "attention_mask", "token_type_ids")}
        start = end = ids.index(tokenizer.cls_token_id)
        if questions[place]["answers"]:
            answer = questions[place]["answers"][0]
            first, last = answer["answer_start"], answer["answer_start"] + len(answer["text"])
            context = [token for token, offset in enumerate(offsets) if offset]
            if context and offsets[context[0]][0] <= first and offsets[context[-1]][1] >= last:
                start = max(token for token in context if offsets[token][0] <= first)
                end = min(token for token in context if offsets[token][1] >= last)
        inputs |= {"start_positions": start, "end_positions": end}
        found.append({"inputs": inputs, "question": place, "offsets": offsets})
    return found


def best_answers(questions, windows, starts, ends, n_best, max_answer):
    """The text of the best answer to each question, over all its windows."""
    best = [(-np.inf, "")] * len(questions)
    for window, start_scores, end_scores in zip(windows, starts, ends):
        context = questions[window["question"]]["context"]
        offsets = window["offsets"]
        top = [np.argsort(scores[:len(offsets)])[::-1][:n_best].tolist() for scores in (start_scores, end_scores)]
        for start in top[0]:
            for end in top[1]:
                if offsets[start] and offsets[end] and start <= end < start + max_answer:
                    found = (float(start_scores[start] + end_scores[end]), context[offsets[start][0]:offsets[end][1]])
                    best[window["question"]] = max(best[window["question"]], found, key=lambda found: found[0])
    return [text for _, text in best]


def scores(questions, answers):
    """Exact match and F1 as SQuAD's evaluate-v1.1.py has them, from 0 to 1."""
    exact, f1 = [], []
    for question, answer in zip(questions, answers):
        golds = [gold["text"] for gold in question["answers"]]
        exact.append(max(float(normal(answer) == normal(gold)) for gold in golds))
        f1.append(max(overlap(normal(answer).split(), normal(gold).split()) for gold in golds))
    return {"f1": float(np.mean(f1)), "exact": float(np.mean(exact))}


def normal(text):
    text = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def overlap(found, gold):
    same = sum((collections.Counter(found) & collections.Counter(gold)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(found), same / len(gold)
    return 2 * precision * recall / (precision + recall)
