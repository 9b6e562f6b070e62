"""The world on disk: books as text files, and the twelve datasets in their public file formats, byte for byte.

Folder names, file names, headers, column order and quirks are those of the public distributions: a byte-order mark in
MRPC, no header in CoLA and SciTail, rows without a gold label ("-") in SNLI, spaces in Story Cloze's file names, test
files without labels where the public ones have none. All of it is synthetic.
"""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from gptcore.base.tables import read_table
from gptcore.storyworld import rows as makers
from gptcore.storyworld.lexicon import Words
from gptcore.storyworld.narrate import key

NLI = ("entailment", "neutral", "contradiction")
SIZES = {
    "snli": (600, 300, 100),
    "mnli": (600, 300, 60),
    "qnli": (600, 300, 60),
    "rte": (600, 300, 60),
    "scitail": (600, 300, 150),
    "race": (240, 200, 0),
    "storycloze": (800, 0, 160),
    "mrpc": (500, 300, 60),
    "qqp": (500, 300, 60),
    "stsb": (500, 300, 60),
    "sst2": (600, 300, 60),
    "cola": (600, 300, 60),
}
"""Rows of train, dev and test. RACE counts questions; dev is halved between its two parts, as in MNLI it is doubled."""

Row = tuple[str, ...]


class Writer:
    """Draws rows that no other split has, and writes files."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.files: list[str] = []
        self.held_out: set[str] = set()
        """Keys of dev and test rows (:func:`key` of their texts)."""
        self._used: set[str] = set()

    def rng(self, name: str) -> Random:
        """A generator of its own for every file, so that changing one leaves the others."""
        return Random(f"storyworld/{self.seed}/{name}")

    def words(self, task: str, split: str) -> Words:
        """About half of the words for train; for dev and test all, but none of train's turns of events and things."""
        narrowed = Words().narrow(self.rng(f"{task}/words"))
        return narrowed if split == "train" else Words().without(narrowed)

    def draw(
        self,
        task: str,
        split: str,
        make: Callable[[Random, Words, str], Row],
        labels: Sequence[str],
        n: int,
        n_texts: int = 2,
    ) -> list[tuple[Row, str]]:
        """``n`` different rows, labels in equal numbers and random order; the first ``n_texts`` values are texts."""
        rng, words = self.rng(f"{task}/{split}"), self.words(task, split)
        wanted = [labels[i % len(labels)] for i in range(n)]
        rng.shuffle(wanted)
        rows = []
        for label in wanted:
            row = make(rng, words, label)
            while f"{task}\t{key(*row[:n_texts])}" in self._used:
                row = make(rng, words, label)
            self._used.add(f"{task}\t{key(*row[:n_texts])}")
            if split != "train":
                self.held_out.add(key(*row[:n_texts]))
            rows.append((row, label))
        return rows

    def write(self, path: str, data: str, encoding: str = "utf-8") -> None:
        """Write one file below the folder, LF line ends."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode(encoding))
        self.files.append(path)

    def table(self, path: str, header: Sequence[str] | None, rows: Sequence[Sequence[str]], **kwargs: str) -> None:
        """Write tab-separated values without any quoting."""
        lines = ([header] if header else []) + list(rows)
        self.write(path, "".join("\t".join(line) + "\n" for line in lines), **kwargs)


def datasets(w: Writer) -> None:
    """Write all twelve datasets."""
    for write in (_snli, _mnli, _tables, _race, _storycloze, _mrpc):
        write(w)


def _snli(w: Writer) -> None:
    for split, n in zip(("train", "dev", "test"), SIZES["snli"], strict=True):
        rng = w.rng(f"snli/{split}/annotators")
        lines = []
        for i, ((premise, hypothesis), label) in enumerate(w.draw("snli", split, makers.snli, NLI, n)):
            picture = f"{rng.randrange(10**9, 10**10)}.jpg#{i % 5}"
            split_vote = rng.random() < 0.02  # the annotators did not agree: no gold label
            votes = [label] * 5 if split == "dev" else [label]
            votes = [*NLI[:2], *NLI[:2], NLI[2]] if split_vote else votes
            record = {
                "annotator_labels": votes,
                "captionID": picture,
                "gold_label": "-" if split_vote else label,
                "pairID": f"{picture}r{i % 3}{label[0]}",
                "sentence1": premise,
                "sentence1_binary_parse": "",
                "sentence1_parse": "",
                "sentence2": hypothesis,
                "sentence2_binary_parse": "",
                "sentence2_parse": "",
            }
            lines.append(json.dumps(record) + "\n")
        w.write(f"SNLI/snli_1.0_{split}.jsonl", "".join(lines))


def _mnli(w: Writer) -> None:
    parses = ["sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"]
    columns = ["index", "promptID", "pairID", "genre", *parses, "sentence1", "sentence2"]
    train, dev, test = SIZES["mnli"]
    for file, n, genres in (
        ("train", train, makers.MATCHED),
        ("dev_matched", dev, makers.MATCHED),
        ("dev_mismatched", dev, makers.MISMATCHED),
        ("test_matched", test, makers.MATCHED),
        ("test_mismatched", test, makers.MISMATCHED),
    ):

        def make(rng: Random, words: Words, label: str, genres: tuple[str, ...] = genres) -> Row:
            genre = rng.choice(genres)
            return (*makers.mnli(rng, words, label, genre), genre)

        votes = {"train": 1, "dev_matched": 5, "dev_mismatched": 5}.get(file, 0)
        header = [*columns, *(f"label{i + 1}" for i in range(votes)), *(["gold_label"] if votes else [])]
        rows = []
        for i, ((premise, hypothesis, genre), label) in enumerate(w.draw("mnli", file, make, NLI, n)):
            ids = [str(i), str(1000 + i), f"{1000 + i}{label[0]}", genre, "", "", "", ""]
            rows.append([*ids, premise, hypothesis, *([label] * votes), *([label] if votes else [])])
        w.table(f"MNLI/{file}.tsv", header, rows)


def _tables(w: Writer) -> None:
    """The sets whose every file is a table, a row a line, as ``formats.toml`` describes them."""
    for task, table in read_table(__file__, "formats.toml").items():
        make = getattr(makers, task)
        for split, n in zip(("train", "dev", "test"), SIZES[task], strict=True):
            shape = {**table, **table.get(split, {})}
            rows = []
            drawn = w.draw(task, split, make, table["labels"], n, n_texts=table.get("texts", 2))
            for i, (row, label) in enumerate(drawn):
                slots = {"i": i, "first": 2 * i + 1, "second": 2 * i + 2, "split": split, "label": label}
                mark = "" if label == "1" else "*"  # of a sentence that is not well formed
                rows.append([cell.format(*row, mark=mark, **slots) for cell in shape["cells"]])
            w.table(shape["file"].format(split=split), shape["header"], rows)


def _race(w: Writer) -> None:
    train, dev, _ = SIZES["race"]
    for split, n in (("train", train), ("dev", dev)):
        for part in ("middle", "high"):

            def make(rng: Random, words: Words, letter: str, part: str = part) -> Row:
                article, question, options = makers.passage(rng, words, part, letter)
                return (article, question, *options)

            for i, ((article, question, *options), letter) in enumerate(w.draw("race", split, make, "ABCD", n // 2)):
                name = f"{i + 1}.txt"
                record = {
                    "answers": [letter],
                    "options": [options],
                    "questions": [question],
                    "article": article,
                    "id": part + name,
                }
                w.write(f"RACE/{split}/{part}/{name}", json.dumps(record))


def _storycloze(w: Writer) -> None:
    header = ["InputStoryid", *(f"InputSentence{i}" for i in (1, 2, 3, 4))]
    header += ["RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2", "AnswerRightEnding"]
    for split, n in (("val", SIZES["storycloze"][0]), ("test", SIZES["storycloze"][2])):
        rng = w.rng(f"storycloze/{split}/ids")
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(header)
        for row, label in w.draw("storycloze", split, makers.storycloze, ("1", "2"), n, n_texts=6):
            w.held_out.add(key(" ".join(row[:4]), row[4 if label == "1" else 5]))
            table.writerow([str(uuid.UUID(int=rng.getrandbits(128), version=4)), *row, label])
        w.write(f"StoryCloze/cloze_test_{split}__spring2016 - cloze_test_ALL_{split}.csv", text.getvalue())


def _mrpc(w: Writer) -> None:
    for split, n in zip(("train", "dev", "test"), SIZES["mrpc"], strict=True):
        rng = w.rng(f"mrpc/{split}/ids")
        rows = []
        for i, (row, label) in enumerate(w.draw("mrpc", split, makers.mrpc, ("1", "0"), n)):
            ids = [str(rng.randrange(10**6, 10**7)) for _ in range(2)]
            rows.append([str(i) if split == "test" else label, *ids, *row])
        first = "index" if split == "test" else "Quality"
        encoding = "utf-8" if split == "test" else "utf-8-sig"  # the public train and dev files start with a BOM
        w.table(f"MRPC/{split}.tsv", [first, "#1 ID", "#2 ID", "#1 String", "#2 String"], rows, encoding=encoding)
