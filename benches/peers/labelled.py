"""Labelled data as a config's `[data]` describes it: rows, tagged sentences, questions.

Written apart from our own readers, so that both sides' counts of examples tell of a row that one of them misreads.
"""

import csv
import glob
import json
import os
import xml.etree.ElementTree as ElementTree


def files(patterns):
    """Files, folders and glob patterns, in our order."""
    for pattern in patterns:
        found = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
        if not found:
            raise SystemExit(f"no file {pattern}")
        yield from found


def rows(paths, source, task):
    """Dictionaries of `text`, `label` and, of pairs, `pair`; numbers in a regression."""
    columns = {"text": "text", "label": "label"} | source.get("columns", {})
    skips = source.get("on_bad_row") == "skip"
    found = []
    for path in files(paths):
        for cells in cells_of(path, source):
            row = {field: str(cells[column]).strip() for field, column in columns.items() if column in cells}
            if "label_before" in source:
                row["label"] = row["label"].split(source["label_before"])[0]
            if task == "regression":
                try:
                    row["label"] = float(row["label"])
                except ValueError:
                    if skips:
                        continue
                    raise
            found.append(row)
    return found


def cells_of(path, source):
    """The cells of each row of a file, by the columns' names and by their numbers from 1."""
    ending = os.path.splitext(path)[1].lstrip(".")
    form = source.get("format", {"ndjson": "jsonl", "tab": "tsv"}.get(ending, ending))
    if form == "xml":
        for element in ElementTree.parse(path).getroot():
            yield dict(element.attrib) | {child.tag: "".join(child.itertext()) for child in element}
    elif form == "jsonl":
        with open(path, encoding="utf-8-sig") as file:
            yield from (json.loads(line) for line in file if line.strip())
    elif form in ("csv", "tsv"):
        mark = source.get("delimiter", "," if form == "csv" else "\t")
        splits = source.get("n_columns", 0) - 1
        with open(path, encoding="utf-8-sig", newline="" if source.get("quoting", form == "csv") else "\n") as file:
            if source.get("quoting", form == "csv"):
                lines = csv.reader(file, delimiter=mark)
            else:
                lines = (line.rstrip("\r\n").split(mark, splits) for line in file if line.strip("\r\n"))
            names = next(lines) if source.get("header", True) else []
            for line in lines:
                yield dict(enumerate(line, 1)) | dict(zip(names, line))
    else:
        raise SystemExit(f"{path}: the peer does not read {form}")


def sentences(paths):
    """Pairs of words and BIO tags of CoNLL's columns: the first one and the last."""
    found = []
    for path in files(paths):
        words, tags = [], []
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            for line in [*file, ""]:
                cells = line.strip("\r\n").split("\t") if "\t" in line else line.split()
                if line.strip() and not line.startswith("-DOCSTART-"):
                    words.append(cells[0].strip())
                    tags.append(cells[-1].strip())
                elif words:
                    found.append((words, bio(tags)))
                    words, tags = [], []
    return found


def bio(tags):
    """Tags of IOB1 or BIO as BIO: an entity begins with B."""
    result, before = [], "O"
    for tag in tags:
        begins = tag != "O" and (tag[0] == "B" or before == "O" or before[2:] != tag[2:])
        result.append("B-" + tag[2:] if begins else tag)
        before = tag
    return result


def questions(paths):
    """Dictionaries of `question`, `context` and `answers`, of SQuAD's JSON."""
    found = []
    for path in files(paths):
        with open(path, encoding="utf-8-sig") as file:
            for article in json.load(file)["data"]:
                for paragraph in article["paragraphs"]:
                    for question in paragraph["qas"]:
                        found.append({"question": question["question"], "context": paragraph["context"],
                                      "answers": question["answers"]})
    return found
