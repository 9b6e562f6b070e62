"""Tasks beyond the twelve in their public formats: SQuAD 1.1 and 2.0, SWAG, CoNLL-2003, Open Entity.

All of it is synthetic.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from gptcore.storyworld import stories, web
from gptcore.storyworld.formats import Writer
from gptcore.storyworld.lexicon import CALLINGS, DAYS, KINDS, PEOPLE, SAID, SEASONS, VILLAGES, Words
from gptcore.storyworld.narrate import key
from gptcore.storyworld.prompted import squad_data

PASSAGES = (180, 80)
"""Of SQuAD's train and dev files, each with some four questions."""
ENDINGS = (600, 300)
"""Rows of SWAG's train and val files."""
SENTENCES = (700, 300, 150)
"""Of CoNLL's train, testa and testb files."""
TYPED = (2000, 300, 300)
"""Mentions of Open Entity's train, dev and test files."""
_SWAG_COLUMNS = ("", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source")

_HELD_OUT = {person.name for person in PEOPLE[1::3]} | set(VILLAGES[1::3])
"""Persons and places of whom no sentence of the train file tells: to know them takes more than a list of names."""

_MENTIONS: Mapping[str, tuple[str, ...]] = {
    "who": ("person",),
    "calling": ("person",),
    "where": ("location", "place"),
    "side": ("group", "organization"),
    "people": ("group", "person"),
    "fair": ("event",),
    "day": ("time",),
    "thing": ("object",),
}
"""What a sentence mentions -> the general types of it."""
_TYPED_IN: Sequence[str] = SAID["mentions"]["sentences"]

_Tagged = tuple[list[str], list[str]]
"""Words, and the tag of each in IOB1."""


def beyond(w: Writer) -> None:
    """Write all of them. Version 2's dev file is another module's: what prompts are tried on."""
    for write in (_squad, _swag, _conll, _typed):
        write(w)


def _squad(w: Writer) -> None:
    for version, splits in (("1.1", ("train", "dev")), ("2.0", ("train",))):
        for split, n in zip(splits, PASSAGES, strict=False):
            rng, words = w.rng(f"squad/{version}/{split}"), w.words("squad", split)
            found: dict[str, web.Asked] = {}
            while len(found) < n:
                item = web.asked(rng, words)
                if version == "1.1":
                    answered = tuple(pair for pair in item.questions if pair[1] != web.UNKNOWN)
                    item = web.Asked(item.passage, answered)
                if item.questions:
                    found.setdefault(key(item.passage), item)
            w.write(f"SQuAD/{split}-v{version}.json", json.dumps(squad_data(list(found.values()), version)))


def _swag(w: Writer) -> None:
    for split, file, n in zip(("train", "dev"), ("train", "val"), ENDINGS, strict=True):
        rng, words = w.rng(f"swag/{split}"), w.words("swag", split)
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow([*_SWAG_COLUMNS, *(f"ending{number}" for number in range(4)), "label"])
        rows: dict[str, list[str]] = {}
        while len(rows) < n:
            start, endings, label = _scene(rng, words)
            cells = [str(len(rows)), f"storyworld{len(rows)}", str(len(rows)), start, start, "", "gold"]
            rows.setdefault(key(start, *endings), [*cells, *endings, str(label)])
        for number, row in enumerate(rows.values()):
            table.writerow([str(number), *row[1:]])
        w.write(f"SWAG/{file}.csv", text.getvalue())


def _scene(rng: Random, words: Words) -> tuple[str, list[str], int]:
    """How somebody's matter went, four ways in which it could go on, and which of them is of that matter and turn."""
    person, (topic, *others) = rng.choice(words.people), rng.sample(words.topics, 3)
    well = rng.random() < 0.7
    right, *told = rng.sample(topic.side(well), min(3, len(topic.side(well))))
    begun = stories.sentence(rng.choice(topic.starts), person)
    wrong = [rng.choice(topic.side(not well)), *(rng.choice(other.side(rng.random() < 0.5)) for other in others)]
    endings = [stories.sentence(clause, person) for clause in (right, *wrong)]
    order = rng.sample(range(4), 4)
    start = " ".join([begun, *(stories.sentence(clause, person) for clause in told)])
    return start, [endings[at] for at in order], order.index(0)


def _conll(w: Writer) -> None:
    for split, file, n in zip(("train", "dev", "test"), ("train", "testa", "testb"), SENTENCES, strict=True):
        rng, words = w.rng(f"conll/{split}"), w.words("conll", split)
        blocks, seen = ["-DOCSTART- -X- O O\n\n"], set[str]()
        while len(blocks) <= n:
            tokens, tags = _sentence(rng, words)
            text = " ".join(tokens)
            if text in seen or (split == "train" and not _HELD_OUT.isdisjoint(tokens)):
                continue
            seen.add(text)
            lines = (f"{token} X O {tag}\n" for token, tag in zip(tokens, tags, strict=True))
            blocks.append("".join(lines) + "\n")
        w.write(f"CoNLL2003/eng.{file}", "".join(blocks))


def _sentence(rng: Random, words: Words) -> _Tagged:
    """News of the villages: who is a person, a place, a team, a fair."""
    kind = rng.randrange(5)
    person, other = (rng.choice(words.people).name for _ in range(2))
    home, away = rng.sample(VILLAGES, 2)
    team, rivals = (f"{village} {rng.choice(CALLINGS).capitalize()}s" for village in (home, away))
    fair, day = f"{rng.choice(SEASONS).capitalize()} Fair", rng.choice(DAYS)
    if kind == 0:
        return _tagged(web.plain(rng, words).text, [(each.name, "PER") for each in PEOPLE])
    if kind == 1:
        return _tagged(
            f"{person} went from {home} to {away} on {day}.", [(person, "PER"), (home, "LOC"), (away, "LOC")]
        )
    if kind == 2:
        return _tagged(f"The {team} beat the {rivals} in {away}.", [(team, "ORG"), (rivals, "ORG"), (away, "LOC")])
    if kind == 3:
        text = f"{person}, a {rng.choice(CALLINGS)} from {home}, won at the {fair}."
        return _tagged(text, [(person, "PER"), (home, "LOC"), (fair, "MISC")])
    text = f"At the {fair} {person} met {other} of the {team}."
    return _tagged(text, [(person, "PER"), (other, "PER"), (fair, "MISC"), (team, "ORG")])


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def _tagged(text: str, names: Sequence[tuple[str, str]]) -> _Tagged:
    """A sentence's words, the longest of the names in it tagged; in IOB1 all of their words begin with I."""
    tokens = _words(text)
    tags = ["O"] * len(tokens)
    for name, kind in sorted(names, key=lambda pair: -len(pair[0].split())):
        parts = name.split()
        for at in range(len(tokens) - len(parts) + 1):
            if tokens[at : at + len(parts)] == parts and set(tags[at : at + len(parts)]) == {"O"}:
                tags[at : at + len(parts)] = [f"I-{kind}"] * len(parts)
    return tokens, tags


def _typed(w: Writer) -> None:
    things = [member for kind in KINDS if kind.made for member in kind.members]
    seen: set[str] = set()
    for split, n in zip(("train", "dev", "test"), TYPED, strict=True):
        rng, words = w.rng(f"typed/{split}"), w.words("typed", split)
        rows: list[dict[str, Any]] = []
        while len(rows) < n:
            (where, side, other), calling = rng.sample(VILLAGES, 3), rng.choice(CALLINGS)
            said = {
                "who": rng.choice(words.people).name,
                "calling": f"the {calling}",
                "where": where,
                "side": side,
                "people": f"the {rng.choice(CALLINGS)}s",
                "fair": f"the {rng.choice(SEASONS)} fair",
                "day": rng.choice(DAYS),
                "thing": rng.choice(things).a,
            }
            sentence = rng.choice(_TYPED_IN)
            kind = rng.choice([name for name in _MENTIONS if f"{{{name}}}" in sentence])
            left, _, right = sentence.partition(f"{{{kind}}}")
            tokens = [_words(part.format(**said, other=other)) for part in (left, right)]
            known = key(" ".join(tokens[0]), said[kind], " ".join(tokens[1]))
            if known in seen:
                continue
            seen.add(known)
            finer = {"calling": calling, "people": "crowd", "side": "team", "fair": "feast"}
            rows.append(
                {
                    "annot_id": f"storyworld/{split}/{len(rows)}",
                    "mention_span": said[kind],
                    "left_context_token": tokens[0],
                    "right_context_token": tokens[1],
                    "y_str": [*_MENTIONS[kind], *([finer[kind]] if kind in finer else [])],
                }
            )
        w.write(f"OpenEntity/crowd/{split}.json", "".join(json.dumps(row) + "\n" for row in rows))
