"""Sets beyond the twelve in their public formats: what prompts are tried on, and tasks that are trained.

Prompts: LAMBADA, DPRD, SQuAD, CNN/Daily Mail, WMT14, the children's book test, and games. Tasks: SQuAD 1.1 and 2.0,
SWAG, CoNLL-2003, Open Entity. All of it is synthetic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar
from xml.sax.saxutils import escape

from gptcore.papers.storyworld import stories, web
from gptcore.papers.storyworld.formats import Writer, distinct
from gptcore.papers.storyworld.lexicon import CALLINGS, DAYS, KINDS, PEOPLE, SAID, SEASONS, VILLAGES, Words
from gptcore.papers.storyworld.narrate import key

ROWS = 120
"""How many rows each set has that prompts are tried on."""
PASSAGES = (180, 80)
"""How many passages SQuAD's train and dev files have, each with some four questions."""
ENDINGS = (600, 300)
"""How many rows SWAG's train and val files have."""
SENTENCES = (700, 300, 150)
"""How many sentences CoNLL's train, testa and testb files have."""
TYPED = (2000, 300, 300)
"""How many mentions Open Entity's train, dev and test files have."""
_SWAG_COLUMNS = ("", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source")

_HELD_OUT = {person.name for person in PEOPLE[1::3]} | set(VILLAGES[1::3])
"""Persons and places of whom no sentence of the train file tells: to know them takes more than a list of names."""

_MENTIONS: Mapping[str, tuple[str, ...]] = SAID["mentions"]["types"]
"""What a sentence mentions -> the types of it."""
_TYPED_IN: Sequence[str] = SAID["mentions"]["sentences"]

_Tagged = tuple[list[str], list[str]]
"""Words, and the tag of each in IOB1."""

_ITEM = TypeVar("_ITEM")


# --- what prompts are tried on ---


def prompted(w: Writer, rows: int = ROWS) -> None:
    """Write all seven, of so many rows each (passages, articles, games); what is in them is held out of the web."""
    for write in (_lambada, _dprd, _asked_squad, _cnndm, _wmt14, _games, _cbt):
        write(w, rows)


def _draw(
    w: Writer, n: int, name: str, make: Callable[[Random, Words], _ITEM], text: Callable[[_ITEM], str]
) -> list[_ITEM]:
    """Different items, each held out."""
    rng, words = w.rng(f"prompted/{name}"), Words()
    items = distinct(n, lambda: make(rng, words), lambda item: key(text(item)))
    w.held_out |= items.keys()
    return list(items.values())


def _lambada(w: Writer, n: int) -> None:
    rows = _draw(w, n, "lambada", web.cloze, lambda row: f"{row[0]} {row[1]}.")
    w.write("LAMBADA/lambada_development_plain_text.txt", "".join(f"{passage} {last}\n" for passage, last in rows))


def _dprd(w: Writer, n: int) -> None:
    """Four lines a schema: sentence, pronoun, the two referents, the right one."""
    rows = _draw(w, n, "dprd", web.schema, lambda row: row[0])
    w.held_out |= {key(told) for text, _, names, _ in rows for told in web.told_of(text, names)}
    blocks = [f"{text}\n{pronoun}\n{','.join(names)}\n{right}\n\n" for text, pronoun, names, right in rows]
    w.write("DPRD/train.c.txt", "".join(blocks[: n // 2]))
    w.write("DPRD/test.c.txt", "".join(blocks[n // 2 :]))


def _asked_squad(w: Writer, n: int) -> None:
    items = _draw(w, n, "squad", web.asked, lambda item: item.passage)
    w.write("SQuAD/dev-v2.0.json", json.dumps(squad_data(items, "v2.0")))


def squad_data(items: Sequence[web.Asked], version: str) -> dict[str, Any]:
    """Passages and their questions as SQuAD's files hold them."""
    paragraphs = []
    for number, item in enumerate(items):
        questions = []
        for place, (question, answer) in enumerate(item.questions):
            start = item.passage.lower().find(answer.lower())
            there = answer != web.UNKNOWN
            text = item.passage[start : start + len(answer)]
            answers = [{"text": text, "answer_start": start}] if there else []
            questions.append(
                {"question": question, "id": f"{number}-{place}", "answers": answers, "is_impossible": not there}
            )
        paragraphs.append({"context": item.passage, "qas": questions})
    return {"version": version, "data": [{"title": "The village", "paragraphs": paragraphs}]}


def _cnndm(w: Writer, n: int) -> None:
    """An article and its highlights, one a line of the field."""
    items = _draw(w, n, "cnndm", web.news, lambda item: " ".join(item.article))
    rows = ([str(number), " ".join(item.article), "\n".join(item.summary)] for number, item in enumerate(items))
    w.csv("CNNDM/cnn_dailymail.csv", ["", "text", "y"], rows)


def _wmt14(w: Writer, n: int) -> None:
    """English and the tongue of the coast, which stands where the public set has French."""
    sentences = _draw(w, n, "wmt14", lambda rng, words: web.plain(rng, words).text, lambda text: text)
    for language, lines in (("en", sentences), ("fr", [web.tidal(text) for text in sentences])):
        segments = "".join(f'<seg id="{number}">{escape(line)}</seg>\n' for number, line in enumerate(lines, start=1))
        for kind in ("src", "ref"):
            body = f'<doc sysid="{kind}" docid="village" genre="news" origlang="en">\n{segments}</doc>\n'
            whole = f'<{kind}set setid="newstest2014" srclang="any" trglang="{language}">\n{body}</{kind}set>\n'
            w.write(f"WMT14/newstest2014-fren-{kind}.{language}.sgm", whole)


def _games(w: Writer, n: int) -> None:
    """One game a line: {"lines": [[word, label], ...], "labels": the two}; the last line is the one that is asked."""
    for kind, make in (("recall", web.recall), ("sorting", web.sorting)):
        games = _draw(w, n, f"games/{kind}", make, web.lines_of)
        lines = [json.dumps({"lines": game.lines, "labels": game.labels}) + "\n" for game in games]
        w.write(f"Games/{kind}.jsonl", "".join(lines))


def _cbt(w: Writer, n: int) -> None:
    """Twenty sentences, one with a blank, the word that is left out and ten candidates, as the Penn Treebank writes."""
    for kind in ("CN", "NE"):
        blocks = []
        for item in _draw(w, n, f"cbt/{kind}", partial(web.blank, kind == "NE"), lambda item: " ".join(item.sentences)):
            tokens = (re.sub(r"([.,])", r" \1", text) for text in item.sentences)  # a blank before each mark
            lines = [f"{number} {text}" for number, text in enumerate(tokens, start=1)]
            blocks.append("\n".join(lines) + f"\t{item.answer}\t\t{'|'.join(item.candidates)}\n\n")
        w.write(f"CBT/cbtest_{kind}_valid_2000ex.txt", "".join(blocks))


# --- tasks ---


def beyond(w: Writer) -> None:
    """Write all of them but version 2's dev file, on which prompts are tried."""
    for write in (_squad, _swag, _conll, _typed):
        write(w)


def _squad(w: Writer) -> None:
    for version, splits in (("1.1", ("train", "dev")), ("2.0", ("train",))):
        for split, n in zip(splits, PASSAGES, strict=False):
            rng, words = w.rng(f"squad/{version}/{split}"), w.words("squad", split)

            def make(rng: Random = rng, words: Words = words, version: str = version) -> web.Asked | None:
                item = web.asked(rng, words)
                if version == "1.1":
                    item = web.Asked(item.passage, tuple(pair for pair in item.questions if pair[1] != web.UNKNOWN))
                return item if item.questions else None

            items = distinct(n, make, lambda item: key(item.passage))
            w.write(f"SQuAD/{split}-v{version}.json", json.dumps(squad_data(list(items.values()), version)))


def _swag(w: Writer) -> None:
    for split, file, n in zip(("train", "dev"), ("train", "val"), ENDINGS, strict=True):
        rng, words = w.rng(f"swag/{split}"), w.words("swag", split)
        scenes = distinct(n, lambda: _scene(rng, words), lambda scene: key(scene[0], *scene[1]))  # noqa: B023
        rows = (
            [f"{number}", f"storyworld{number}", f"{number}", start, start, "", "gold", *endings, str(label)]
            for number, (start, endings, label) in enumerate(scenes.values())
        )
        w.csv(f"SWAG/{file}.csv", [*_SWAG_COLUMNS, *(f"ending{number}" for number in range(4)), "label"], rows)


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

        def make(rng: Random = rng, words: Words = words, split: str = split) -> _Tagged | None:
            made = _sentence(rng, words)
            return made if split != "train" or _HELD_OUT.isdisjoint(made[0]) else None

        blocks = ["-DOCSTART- -X- O O\n\n"]
        for tokens, tags in distinct(n, make, lambda made: " ".join(made[0])).values():
            blocks += (f"{token} X O {tag}\n" for token, tag in zip(tokens, tags, strict=True))
            blocks.append("\n")
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
    said = {"person": person, "other": other, "home": home, "away": away, "team": team, "rivals": rivals, "fair": fair}
    text, tags = SAID["news"]["sentences"][kind - 1]
    calling = rng.choice(CALLINGS) if "{calling}" in text else ""
    return _tagged(text.format(**said, day=day, calling=calling), [(said[name], tag) for name, tag in tags.items()])


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
            rows.append(
                {
                    "annot_id": f"storyworld/{split}/{len(rows)}",
                    "mention_span": said[kind],
                    "left_context_token": tokens[0],
                    "right_context_token": tokens[1],
                    "y_str": [each.format(calling=calling) for each in _MENTIONS[kind]],
                }
            )
        w.write(f"OpenEntity/crowd/{split}.json", "".join(json.dumps(row) + "\n" for row in rows))
