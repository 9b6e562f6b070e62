"""The twelve datasets: their rows, of two texts, one, or choices, and their public file formats, byte for byte.

Folder names, file names, headers, column order and quirks are those of the public distributions: a byte-order mark in
MRPC, no header in CoLA and SciTail, rows without a gold label ("-") in SNLI, spaces in Story Cloze's file names, test
files without labels where the public ones have none. All of it is synthetic.
"""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

from gptcore.base.tables import read_table
from gptcore.papers.storyworld import facts, stories
from gptcore.papers.storyworld.lexicon import PEOPLE, SAID, Person, Words, capital, say, uncapital
from gptcore.papers.storyworld.narrate import key, unrelated

Pair = tuple[str, str]


def snli(rng: Random, words: Words, label: str) -> Pair:
    """A picture's caption and a claim about whoever is in it."""
    who, female = rng.choice((("man", False), ("woman", True), ("boy", False), ("girl", True)))
    (premise,), claim = stories.judged(rng, words, label)
    return stories.sentence(premise, Person(f"a {who}", female)), stories.sentence(claim, Person(f"the {who}", female))


def mnli(rng: Random, words: Words, label: str, genres: Sequence[str]) -> tuple[str, str, str]:
    """A sentence of a genre, a claim, and the genre."""
    genre, person = rng.choice(genres), rng.choice(words.people)
    (premise,), claim = stories.judged(rng, words, label)
    text, (a, b) = stories.sentence(premise, person), rng.sample(PEOPLE, 2)
    if genre in SAID["genres"]:  # as the genre would put it
        text = say(rng, SAID["genres"][genre], text=text, small=uncapital(text), a=a, b=b)
    return text, stories.sentence(claim, person), genre


def rte(rng: Random, words: Words, label: str) -> Pair:
    """Two turns of one matter among other news, and a claim that they bear out, or not."""
    person, other = rng.sample(words.people, 2)
    if label != "entailment":  # the contrary more often than what has nothing to do with it
        label = rng.choice(("contradiction", "contradiction", "neutral"))
    told, claim = stories.judged(rng, words, label, 2)
    aside = rng.choice(stories.some(rng, words)[0].starts)
    lines = [stories.sentence(aside, other), *(stories.sentence(clause, person) for clause in told)]
    return " ".join(lines), stories.sentence(claim, person)


def qnli(rng: Random, words: Words, label: str) -> Pair:
    """A question, and a sentence that answers it or not."""
    s = facts.statement(rng, words)
    question = rng.choice(s.questions).text
    return question, s.text if label == "entailment" else unrelated(rng, words, s)


def scitail(rng: Random, words: Words, label: str) -> Pair:
    """A school book fact and a claim."""
    return facts.science(rng, words, label == "entails")


def mrpc(rng: Random, words: Words, label: str) -> Pair:
    """Two newspaper sentences."""
    person = rng.choice(words.people)
    first, second = (stories.fill(c, person) for c in stories.two_reports(rng, words, label == "1"))
    return tokenised(rng, stories.report(rng, first)), tokenised(rng, stories.report(rng, second))


def qqp(rng: Random, words: Words, label: str) -> Pair:
    """Two questions."""
    person = rng.choice(words.people)
    first, second = (stories.fill(c, person) for c in stories.two_reports(rng, words, label == "1"))
    return stories.ask(rng, first), stories.ask(rng, second)


def stsb(rng: Random, words: Words, label: str) -> tuple[str, str, str]:
    """Two sentences and how alike they are, "0.000" to "5.000"; the label, which is drawn with them, is empty."""
    first, second, score = stories.graded(rng, words)
    return capital(first), capital(second), f"{score:.3f}"


def tokenised(rng: Random, text: str) -> str:
    """The text as MRPC writes it: punctuation set off, a stray quotation mark now and then."""
    spaced = text.replace(",", " ,").replace(".", " .").replace("?", " ?")
    return f'" {spaced}' if rng.random() < 0.15 else spaced


def sst2(rng: Random, words: Words, label: str) -> tuple[str]:
    """A judgement in lower case, tokenised."""
    text = stories.opinion(rng, words, label == "1").replace(",", " ,").replace("  ", " ")
    return (text + rng.choice(("", " .")),)


def cola(rng: Random, words: Words, label: str) -> tuple[str]:
    """A sentence, well formed or not."""
    return (stories.utterance(rng, words, label == "1"),)


def storycloze(rng: Random, words: Words, label: str) -> tuple[str, str, str, str, str, str]:
    """Four sentences and two endings, of which the first or the second fits."""
    tale = stories.tale(rng, words)
    endings = (tale.right, tale.wrong) if label == "1" else (tale.wrong, tale.right)
    one, two, three, four = tale.lines
    return one, two, three, four, *endings


def passage(part: str, rng: Random, words: Words, letter: str) -> tuple[str, ...]:
    """Article, question and options of RACE's ``part``, middle or high; the right option stands at ``letter``."""
    p = stories.about(rng, words) if part == "middle" else stories.what_else(rng, words)
    right, *options = p.options
    rng.shuffle(options)
    options.insert("ABCD".index(letter), right)
    return p.article, p.question, *options


# --- files ---

NLI = ("entailment", "neutral", "contradiction")
_SPLITS = ("train", "dev", "test")
_FORMATS = read_table(__file__, "formats.toml")
SIZES: Mapping[str, tuple[int, int, int]] = _FORMATS["sizes"]
"""Rows of train, dev and test."""

Row = tuple[str, ...]
_T = TypeVar("_T")


def distinct(n: int, make: Callable[[], _T | None], name: Callable[[_T], str]) -> dict[str, _T]:
    """``n`` things under different names, the first of each name; None is no thing."""
    things: dict[str, _T] = {}
    while len(things) < n:
        if (made := make()) is not None:
            things.setdefault(name(made), made)
    return things


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

    def csv(self, path: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Write comma-separated values, quoted where they have to be."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        self.write(path, text.getvalue())


def datasets(w: Writer) -> None:
    """Write all twelve datasets."""
    for write in (_snli, _tables, _race, _storycloze):
        write(w)


def _snli(w: Writer) -> None:
    for split, n in zip(_SPLITS, SIZES["snli"], strict=True):
        rng = w.rng(f"snli/{split}/annotators")
        lines = []
        for i, ((premise, hypothesis), label) in enumerate(w.draw("snli", split, snli, NLI, n)):
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


_MADE: Mapping[str, Callable[..., Row]] = {
    made.__name__: made for made in (mnli, rte, qnli, scitail, mrpc, qqp, stsb, sst2, cola)
}


def _tables(w: Writer) -> None:
    """The sets whose every file is a table, a row a line, as ``formats.toml`` describes them."""
    for task, table in _FORMATS["tables"].items():
        sizes = dict(zip(_SPLITS, SIZES[task], strict=True))
        for split in table.get("files", _SPLITS):
            shape = {**table, **table.get(split, {})}
            make = _MADE[task]
            if "genres" in shape:
                make = partial(make, genres=shape["genres"])
            n, ids = sizes[split.partition("_")[0]], w.rng(f"{task}/{split}/ids")
            lines = [shape["header"]] if shape["header"] else []
            drawn = w.draw(task, split, make, table["labels"], n, n_texts=table.get("texts", 2))
            for i, (row, label) in enumerate(drawn):
                slots = {"i": i, "first": 2 * i + 1, "second": 2 * i + 2, "prompt": 1000 + i, "split": split}
                slots |= {"one": ids.randrange(10**6, 10**7), "other": ids.randrange(10**6, 10**7), "label": label}
                mark = "" if label == "1" else "*"  # of a sentence that is not well formed
                lines.append([cell.format(*row, mark=mark, **slots) for cell in shape["cells"]])
            text = "".join("\t".join(line) + "\n" for line in lines)  # without any quoting
            w.write(shape["file"].format(split=split), text, shape.get("encoding", "utf-8"))


def _race(w: Writer) -> None:
    train, dev, _ = SIZES["race"]
    for split, n in (("train", train), ("dev", dev)):
        for part in ("middle", "high"):
            drawn = w.draw("race", split, partial(passage, part), "ABCD", n // 2)
            for i, ((article, question, *options), letter) in enumerate(drawn):
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
        rows = []
        for row, label in w.draw("storycloze", split, storycloze, ("1", "2"), n, n_texts=6):
            w.held_out.add(key(" ".join(row[:4]), row[4 if label == "1" else 5]))
            rows.append([str(uuid.UUID(int=rng.getrandbits(128), version=4)), *row, label])
        w.csv(f"StoryCloze/cloze_test_{split}__spring2016 - cloze_test_ALL_{split}.csv", header, rows)
