"""What prompts are tried on, in the public sets' formats.

LAMBADA, DPRD, SQuAD, CNN/Daily Mail, WMT14, the children's book test, and games.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar
from xml.sax.saxutils import escape

from gptcore.storyworld import web
from gptcore.storyworld.formats import Writer
from gptcore.storyworld.lexicon import Words
from gptcore.storyworld.narrate import key

ROWS = 120
_ITEM = TypeVar("_ITEM")


def prompted(w: Writer, rows: int = ROWS) -> None:
    """Write all seven, of so many rows each (passages, articles, games); what is in them is held out of the web."""
    for write in (_lambada, _dprd, _squad, _cnndm, _wmt14, _games, _cbt):
        write(w, rows)


def _draw(
    w: Writer, n: int, name: str, make: Callable[[Random, Words], _ITEM], text: Callable[[_ITEM], str]
) -> list[_ITEM]:
    """Different items, each held out."""
    rng, words, found = w.rng(f"prompted/{name}"), Words(), dict[str, _ITEM]()
    while len(found) < n:
        item = make(rng, words)
        found.setdefault(key(text(item)), item)
    w.held_out |= found.keys()
    return list(found.values())


def _lambada(w: Writer, n: int) -> None:
    """One passage a line; to guess is its last word."""
    rows = _draw(w, n, "lambada", web.cloze, lambda row: f"{row[0]} {row[1]}.")
    w.write("LAMBADA/lambada_development_plain_text.txt", "".join(f"{passage} {last}\n" for passage, last in rows))


def _dprd(w: Writer, n: int) -> None:
    """Four lines a schema: sentence, pronoun, the two referents, the right one."""
    rows = _draw(w, n, "dprd", web.schema, lambda row: row[0])
    w.held_out |= {key(told) for text, _, names, _ in rows for told in web.told_of(text, names)}
    blocks = [f"{text}\n{pronoun}\n{','.join(names)}\n{right}\n\n" for text, pronoun, names, right in rows]
    w.write("DPRD/train.c.txt", "".join(blocks[: n // 2]))
    w.write("DPRD/test.c.txt", "".join(blocks[n // 2 :]))


def _squad(w: Writer, n: int) -> None:
    """Version 2: a question without an answer in the passage is marked as impossible."""
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
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["", "text", "y"])
    for number, item in enumerate(_draw(w, n, "cnndm", web.news, lambda item: " ".join(item.article))):
        table.writerow([str(number), " ".join(item.article), "\n".join(item.summary)])
    w.write("CNNDM/cnn_dailymail.csv", text.getvalue())


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
            lines = [f"{number} {_in_tokens(text)}" for number, text in enumerate(item.sentences, start=1)]
            blocks.append("\n".join(lines) + f"\t{item.answer}\t\t{'|'.join(item.candidates)}\n\n")
        w.write(f"CBT/cbtest_{kind}_valid_2000ex.txt", "".join(blocks))


def _in_tokens(sentence: str) -> str:
    """A sentence with a blank before each of its marks."""
    return re.sub(r"([.,])", r" \1", sentence)
