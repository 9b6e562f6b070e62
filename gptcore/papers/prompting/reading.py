"""The public files of what GPT-2 was asked: LAMBADA, CNN/Daily Mail, WMT14, SQuAD, the children's book test,
and games; each row as an item.
"""

from __future__ import annotations

import csv
import fnmatch
import html
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, TypeGuard

from gptcore.base.errors import InputError, require
from gptcore.base.filesystems import file_system, is_folder, names_in
from gptcore.nlu.readers import csv_rows, lines, parse_object, show
from gptcore.nlu.readers.passages import read_squad
from gptcore.nlu.registry import BEYOND
from gptcore.papers.prompting.items import UNKNOWN, FreeForm, Item, MultipleChoice, Rows

_DETOKENISED = (
    (r"``\s*", '"'),
    (r"\s*''", '"'),
    (r"(?:^|(?<=\s))`\s+(.*?)\s+'(?=\s|$)", r"'\1'"),
    (r"(?:^|(?<=\s))`\s+", "'"),
    (r"\s+(n't|'s|'m|'re|'ve|'ll|'d)\b", r"\1"),
    (r"\b(gon|wan) na\b", r"\1na"),
    (r"\s+([.,;:?!])", r"\1"),
)
_LAMBADA_TEST, _LAMBADA_DEVELOPMENT = "lambada_test_plain_text.txt", "lambada_development_plain_text.txt"
_SQUAD = ("dev-v2.0.json", "dev-v1.1.json")
_CNNDM = ("test.csv", "cnn_dailymail*.csv")
_BYLINE = re.compile(r"^By\. .{1,80}?\. (?=[A-Z'\"\u2018\u201c])")
_DATES = re.compile(
    r"^.{0,300}?(?:PUBLISHED|UPDATED):\. [^.]{5,40} \d{4}\. (?:\|\. UPDATED:\. [^.]{5,40} \d{4}\. )?", re.DOTALL
)
_DATELINE = re.compile(r"^(?:[A-Z][\w.'-]*,? ){0,6}\(CNN\) ?(?:-- ?)?")
_SEGMENT = re.compile(r'<seg id="(\d+)">(.*?)</seg>', re.DOTALL)
_SYSTEM = re.compile(r"<doc\b[^>]*>", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONGEST = 1 << 24  # characters of a field
Kind = Literal["CN", "NE"]
"""What is left out: a common noun or a named entity."""
CBT = "CBT"
SENTENCES = 20
"""Sentences before the one with the blank."""
CANDIDATES = 10
BLANK = "XXXXX"
_BRACKETS = {"-LRB- ": "(", " -RRB-": ")", "-LSB- ": "[", " -RSB-": "]", "-LCB- ": "{", " -RCB-": "}"}


def lambada(datasets_url: str) -> Rows:
    """Passages whose last word only the whole passage tells (Paperno et al. 2016); marks as in running text.

    The test file is asked, on which the papers report, and examples are drawn from the development file. Where one of
    the two is missing, the other one is asked, and examples are its other passages.

    :raises InputError: no such file, or a passage of fewer than two words.
    """
    asked = file_of(datasets_url, "LAMBADA", (_LAMBADA_TEST, _LAMBADA_DEVELOPMENT))
    beside = find_file(datasets_url, "LAMBADA", (_LAMBADA_DEVELOPMENT,))
    if beside is None or beside == asked:
        return Rows(_passages(asked))
    return Rows(_passages(asked), _passages(beside), "the development file")


def _passages(url: str) -> list[FreeForm]:
    items = []
    for number, line in _lines(url):
        passage, _, last = detokenised(line.strip()).rpartition(" ")
        if not passage or not any(map(str.isalpha, last)):
            raise InputError(f"{url}, line {number}: found {show(line.strip())}, expected a passage of words")
        items.append(FreeForm(passage, (last.rstrip("\"'").lstrip("'"),)))  # an opening " is what comes next
    return items


def lambada_cloze(datasets_url: str) -> Rows:
    """LAMBADA as fill-in-the-blank (GPT-3's paper, section 3.1.1), so that examples tell that one word is wanted.

    :raises InputError: as :func:`lambada`.
    """

    def with_blank(item: Item) -> FreeForm:
        assert isinstance(item, FreeForm)
        word = item.answers[0].lstrip('"')
        opening = item.answers[0].removesuffix(word)
        return FreeForm(f"{item.question} {opening}____. ->", (word,))

    rows = lambada(datasets_url)
    asked, pool = ([with_blank(item) for item in part] for part in (rows.asked, rows.pool))
    return Rows(asked, pool, rows.pool_name, separator="\n")


def detokenised(text: str) -> str:
    """A tokenised text as it is written: marks stand at their words (GPT-2's paper, section 3.1)."""
    for pattern, replacement in _DETOKENISED:
        text = re.sub(pattern, replacement, text)
    return text


def summaries(datasets_url: str, hint: str) -> Rows:
    """Articles of CNN and the Daily Mail and their highlights (GPT-2's paper, section 3.6).

    :param hint: what stands behind an article and says that its summary follows; if empty, nothing says so.

    The file has a column of articles (``text`` or ``article``) and one of highlights (``y`` or ``highlights``), which
    stand on a line each.

    :raises InputError: no such file or column, or an empty field.
    """
    url = file_of(datasets_url, "CNNDM", _CNNDM)
    return Rows(
        [
            FreeForm(hint, (highlights,), context=without_byline(" ".join(article.split())))
            for article, highlights in _columns(url, (("text", "article"), ("y", "highlights")))
        ]
    )


def without_byline(article: str) -> str:
    """An article from its first sentence on: who wrote it, when and for whom is none of its text."""
    for head in (_DATES, _BYLINE, _DATELINE):
        article = head.sub("", article, count=1)
    return article


def translations(datasets_url: str, source: str, target: str) -> Rows:
    """Sentences of newstest2014, "english sentence = french sentence" (GPT-2's paper, section 3.7).

    :raises InputError: no such files, or two that do not go together.
    """
    folder = f"{datasets_url.rstrip('/')}/WMT14"
    urls = [
        f"{folder}/newstest2014-fren-{kind}.{language}.sgm" for kind, language in (("src", source), ("ref", target))
    ]
    sides = [_segments(url) for url in urls]
    if [name for name, _ in sides[0]] != [name for name, _ in sides[1]]:
        raise InputError(f"{urls[1]}: its {len(sides[1])} sentences are not those of {urls[0]} ({len(sides[0])})")
    pairs = zip(sides[0], sides[1], strict=True)
    return Rows([FreeForm(f"{text} =", (translation,)) for (_, text), (_, translation) in pairs], separator="\n")


def questions(datasets_url: str) -> Rows:
    """Questions about a passage (SQuAD); those before them in its conversation, answered, are the examples.

    GPT-2 read the passage, the whole conversation and "A:" (its paper, section 3.5, on CoQA). A question without an
    answer in the passage has :data:`gptcore.papers.prompting.items.UNKNOWN`, of which a prompt without examples does
    not know.

    :raises InputError: no such file, or one of another shape.
    """
    url = file_of(datasets_url, "SQuAD", _SQUAD)
    items: list[FreeForm] = []
    of_a_passage = groupby(read_squad(BEYOND["squad2"], url, ""), key=lambda row: row.row.rpartition(",")[0])
    for _, rows in of_a_passage:
        earlier: list[tuple[str, str]] = []
        for row in rows:
            question, context = (" ".join(text.split()) for text in row.fields)
            texts = dict.fromkeys(row.fields[-1][place.start : place.end] for place in row.annotations)
            item = FreeForm(f"\nQ: {question}\nA:", tuple(texts) or (UNKNOWN,), context, tuple(earlier))
            items.append(item)
            earlier.append(item.shown)
    return Rows(items)


def games(datasets_url: str, kind: str) -> Rows:
    """Words sorted by labels that mean something else in each game: what, only the lines before tell.

    Asked is the last line of each.

    :param kind: "recall", where the word that is asked stands above, or "sorting", where others of its kind do.
    :raises InputError: no such file, or one of another shape.
    """
    url = file_of(datasets_url, "Games", (f"{kind}.jsonl",))
    items = []
    for number, line in _lines(url):
        game = parse_object(line, url, number)
        turns: Any = game.get("lines")
        labels: Any = game.get("labels")
        if not _is_pairs(turns) or not _are_texts(labels) or any(label not in labels for _, label in turns):
            raise InputError(f'{url}, line {number}: expected {{"lines": [[word, label], ...], "labels": [...]}}')
        *earlier, (word, label) = [(f"\n{word} ->", label) for word, label in turns]
        items.append(MultipleChoice(word, tuple(labels), labels.index(label), earlier=tuple(earlier)))
    return Rows(items)


def file_of(datasets_url: str, folder: str, patterns: Sequence[str]) -> str:
    """The file of a folder whose name fits a pattern, the first of them that any does.

    :raises InputError: there is none.
    """
    if (file := find_file(datasets_url, folder, patterns)) is None:
        there = f"{datasets_url.rstrip('/')}/{folder}"
        raise InputError(f"{there}: found no {' or '.join(patterns)} there, expected the public file")
    return file


def find_file(datasets_url: str, folder: str, patterns: Sequence[str]) -> str | None:
    """The file of a folder whose name fits a pattern, the first of them that any does; None where there is none."""
    url = f"{datasets_url.rstrip('/')}/{folder}"
    fs, path = file_system(url)
    names = sorted(names_in(fs, path)) if is_folder(fs, path) else []
    fitting = [name for pattern in patterns for name in fnmatch.filter(names, pattern)]
    return f"{url}/{fitting[0]}" if fitting else None


def _lines(url: str) -> Iterator[tuple[int, str]]:
    """Line numbers and lines that hold something."""
    return ((number, line) for number, line in lines(url) if line.strip())


def _columns(url: str, wanted: tuple[tuple[str, ...], ...]) -> Iterator[list[str]]:
    """The values of some columns of a comma-separated file, each under one of its names."""
    csv.field_size_limit(_LONGEST)
    rows = csv_rows(url)
    _, header = next(rows, (1, []))
    chosen = [next((name for name in names if name in header), None) for names in wanted]
    places = [header.index(name) for name in chosen if name is not None]
    if len(places) != len(wanted):
        expected = " and ".join(" or ".join(names) for names in wanted)
        raise InputError(f"{url}, line 1: found the columns {', '.join(header)}, expected {expected}")
    for number, row in rows:
        values = [row[place].strip() if place < len(row) else "" for place in places]
        if not all(values):
            raise InputError(f"{url}, line {number}: found an empty field, expected text in each")
        yield values


def _segments(url: str) -> list[tuple[tuple[int, str], str]]:
    text = "".join(line for _, line in _lines(url))
    sentences: list[tuple[tuple[int, str], str]] = []
    for document, part in enumerate(_SYSTEM.split(text)[1:]):
        for number, segment in _SEGMENT.findall(part):
            sentences.append(((document, number), " ".join(html.unescape(segment).split())))
    require(sentences, f'{url}: found no <seg id="...">, expected the sentences of newstest2014')
    return sentences


def _is_pairs(value: Any) -> TypeGuard[list[tuple[str, str]]]:
    """Whether it is a list of pairs of texts, one at least."""
    return isinstance(value, list) and bool(value) and all(_are_texts(pair) and len(pair) == 2 for pair in value)


def _are_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_text(value: Any) -> bool:
    """Whether it is text that an encoding can hold, and more than spaces."""
    return isinstance(value, str) and bool(value.strip()) and not _SURROGATE.search(value)


def childrens_book(datasets_url: str, kind: Kind) -> Rows:
    """The children's book test (Hill et al. 2016): which of ten words is left out of a sentence that follows twenty.

    A file of the public distribution holds blocks of 21 numbered lines and an empty one. Line 21 is the sentence with
    XXXXX in the place of the word, then between tabs the word, an empty field, and the ten candidates with "|" between:

        21 So Ann has the XXXXX .<tab>kite<tab><tab>ball|boat|kite|...

    The validation questions of one kind are asked, on which GPT-2 reports, as a book of the test set is in its training
    text.

    A candidate is worth the probability of itself and the rest of its sentence (GPT-2's paper, section 3.2). Where the
    validation file is missing, the test file is asked.

    :raises InputError: no such file, or a block that is not of the public shape; names the line.
    """
    url = file_of(datasets_url, CBT, (f"cbtest_{kind}_valid*.txt", f"cbtest_{kind}_test*.txt"))
    block: list[tuple[int, str]] = []
    items = []
    for number, line in lines(url):
        if line.strip():
            block.append((number, line.strip("\r\n")))
        if len(block) == SENTENCES + 1:
            items.append(_book_item(url, block))
            block = []
        elif not line.strip() and block:
            raise InputError(
                f"{url}, line {number}: found {len(block)} lines before the empty one, expected {SENTENCES + 1}"
            )
    if block:
        last = f"{url}, line {block[-1][0]}: found the end of the file after {len(block)} lines"
        raise InputError(f"{last} of a block, expected {SENTENCES + 1}")
    return Rows(items)


def _book_item(url: str, block: Sequence[tuple[int, str]]) -> MultipleChoice:
    sentences = []
    for expected, (number, line) in enumerate(block, start=1):
        said, _, text = line.partition(" ")
        if said != str(expected) or not text.strip():
            raise InputError(f"{url}, line {number}: found {show(line)}, expected sentence {expected} of a block")
        sentences.append(text)
    last, *fields = sentences[-1].split("\t")
    candidates = tuple(text.strip() for text in fields[-1].split("|")) if fields else ()
    answer = fields[0].strip() if fields else ""
    if len(candidates) != CANDIDATES or candidates.count(answer) != 1 or not all(candidates) or BLANK not in last:
        raise InputError(
            f"{url}, line {block[-1][0]}: found {show(sentences[-1])}, expected a sentence with {BLANK}, the word that "
            f"it stands for and {CANDIDATES} candidates"
        )
    text = " ".join(map(running_text, [*sentences[:-1], last]))
    before, _, rest = text.partition(BLANK)
    before, _, opening = before.rpartition(" ")  # a mark that opens before the blank comes with the candidate
    answers = tuple(f"{opening}{candidate}{rest.replace(BLANK, candidate)}" for candidate in candidates)
    return MultipleChoice(before, answers, candidates.index(answer))


def running_text(sentence: str) -> str:
    """A sentence without the traces of the Penn Treebank's tokenization (GPT-2's paper, section 3.2)."""
    for bracket, mark in _BRACKETS.items():
        sentence = sentence.replace(bracket, mark)
    return " ".join(detokenised(sentence).split())
