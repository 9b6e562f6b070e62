"""The public files of what GPT-2 was asked: LAMBADA, CNN/Daily Mail, WMT14, SQuAD, and games; each row as an item."""

from __future__ import annotations

import csv
import html
import json
import re
from collections.abc import Iterator
from typing import Any

import fsspec

from gptcore.errors import InputError
from gptcore.nlu.readers import decoded_lines, parse_object, show, unreadable
from gptcore.places import file_system, is_folder, names_in
from gptcore.prompting.items import Item, Rows

UNANSWERED = "unknown"
"""The answer that examples give to a question without one in its passage."""
LANGUAGES = ("en", "fr")
_DETOKENISED = (
    (r"``\s*", '"'),
    (r"\s*''", '"'),
    (r"(^|(?<=\s))`\s+", "'"),
    (r"\s+(n't|'s|'m|'re|'ve|'ll|'d)\b", r"\1"),
    (r"\s+([.,;:?!])", r"\1"),
)
_SEGMENT = re.compile(r'<seg id="(\d+)">(.*?)</seg>', re.DOTALL)
_SYSTEM = re.compile(r"<doc\b[^>]*>", re.IGNORECASE)
_LONGEST = 1 << 24  # characters of a field


def lambada(datasets_url: str) -> Rows:
    """Passages whose last word only the whole passage tells (Paperno et al. 2016); marks as in running text.

    :raises InputError: no such file, or a passage of fewer than two words.
    """
    items = []
    url = file_of(datasets_url, "LAMBADA", ".txt")
    for number, line in _lines(url):
        passage, _, last = detokenised(line.strip()).rpartition(" ")
        if not passage or not any(map(str.isalpha, last)):
            raise InputError(f"{url}, line {number}: found {show(line.strip())}, expected a passage of words")
        items.append(Item((passage,), (last,)))
    return Rows(items)


def lambada_cloze(datasets_url: str) -> Rows:
    """The same as fill-in-the-blank (GPT-3's paper, section 3.1.1), so that examples tell that one word is wanted.

    :raises InputError: as :func:`lambada`.
    """
    plain = lambada(datasets_url).asked
    return Rows([Item((f"{item.questions[0]} ____. ->",), item.answers) for item in plain])


def detokenised(text: str) -> str:
    """A tokenised text as it is written: marks stand at their words (GPT-2's paper, section 3.1)."""
    for pattern, replacement in _DETOKENISED:
        text = re.sub(pattern, replacement, text)
    return text


def summaries(datasets_url: str) -> Rows:
    """Articles of CNN and the Daily Mail and their highlights, behind "TL;DR:" (GPT-2's paper, section 3.6).

    Columns: the article's (``text`` or ``article``), the highlights' (``y`` or ``highlights``), one a line.

    :raises InputError: no such file or column, or an empty field.
    """
    url = file_of(datasets_url, "CNNDM", ".csv")
    return Rows(
        [
            Item(("\nTL;DR:",), (highlights,), context=" ".join(article.split()))
            for article, highlights in _csv(url, (("text", "article"), ("y", "highlights")))
        ]
    )


def translations(datasets_url: str, source: str, target: str) -> Rows:
    """Sentences of newstest2014, "english sentence = french sentence" (GPT-2's paper, section 3.7).

    :raises InputError: no such files, or two that do not go together.
    """
    folder = f"{datasets_url.rstrip('/')}/WMT14"
    urls = [
        f"{folder}/newstest2014-fren-{kind}.{language}.sgm" for kind, language in (("src", source), ("ref", target))
    ]
    found = [_segments(url) for url in urls]
    if [name for name, _ in found[0]] != [name for name, _ in found[1]]:
        raise InputError(f"{urls[1]}: its {len(found[1])} sentences are not those of {urls[0]} ({len(found[0])})")
    pairs = zip(found[0], found[1], strict=True)
    return Rows([Item((f"{text} =",), (translation,)) for (_, text), (_, translation) in pairs])


def questions(datasets_url: str) -> Rows:
    """Questions about a passage (SQuAD), with those before them as a conversation (GPT-2's paper, section 3.5).

    :raises InputError: no such file, or one of another shape.
    """
    url = file_of(datasets_url, "SQuAD", ".json")
    items = []
    for paragraph in _paragraphs(url):
        context = " ".join(paragraph["context"].split())
        earlier: list[tuple[str, str]] = []
        for asked in paragraph["qas"]:
            texts = dict.fromkeys(answer["text"] for answer in asked["answers"])
            answers = tuple(texts) if not asked.get("is_impossible") and texts else (UNANSWERED,)
            question = " ".join(asked["question"].split())
            item = Item((f"\nQ: {question}\nA:",), answers, context=context, earlier=tuple(earlier))
            items.append(item)
            earlier.append(item.shown)
    return Rows(items)


def games(datasets_url: str) -> Rows:
    """Words sorted by labels that are made up for each game: what they mean, only the lines before tell.

    Asked is the last line of each.

    :raises InputError: no such file, or one of another shape.
    """
    url = file_of(datasets_url, "Games", ".jsonl")
    items = []
    for number, line in _lines(url):
        game = parse_object(line, url, number)
        lines: Any = game.get("lines")
        labels: Any = game.get("labels")
        if not _is_pairs(lines) or not isinstance(labels, list) or any(label not in labels for _, label in lines):
            raise InputError(f'{url}, line {number}: expected {{"lines": [[word, label], ...], "labels": [...]}}')
        *earlier, (word, label) = [(f"\n{word} ->", label) for word, label in lines]
        items.append(Item((word,), tuple(labels), labels.index(label), earlier=tuple(earlier)))
    return Rows(items)


def file_of(datasets_url: str, folder: str, ending: str) -> str:
    """The one file of a folder with an ending; of several the first by name.

    :raises InputError: there is none.
    """
    url = f"{datasets_url.rstrip('/')}/{folder}"
    fs, path = file_system(url)
    names = sorted(name for name in names_in(fs, path) if name.endswith(ending)) if is_folder(fs, path) else []
    if not names:
        raise InputError(f"{url}: found no *{ending} there, expected the public file")
    return f"{url}/{names[0]}"


def _lines(url: str) -> Iterator[tuple[int, str]]:
    """Line numbers and lines that hold something."""
    try:
        with fsspec.open(url, "rb") as file:
            for number, line in decoded_lines(file, url):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise unreadable(url, error) from error


def _csv(url: str, wanted: tuple[tuple[str, ...], ...]) -> Iterator[list[str]]:
    """The values of some columns, each under one of its names."""
    csv.field_size_limit(_LONGEST)
    try:
        with fsspec.open(url, "rt", encoding="utf-8", newline="") as file:
            table = csv.reader(file, strict=True)
            header = next(table, [])
            places = [next((header.index(name) for name in names if name in header), None) for names in wanted]
            if None in places:
                names = " and ".join(" or ".join(names) for names in wanted)
                raise InputError(f"{url}, line 1: found the columns {', '.join(header)}, expected {names}")
            for row in table:
                found = [row[place].strip() if place is not None and place < len(row) else "" for place in places]
                if not all(found):
                    raise InputError(f"{url}, line {table.line_num}: found an empty field, expected text in each")
                yield found
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{url}: found {error}, expected comma-separated values in UTF-8") from error
    except OSError as error:
        raise unreadable(url, error) from error


def _segments(url: str) -> list[tuple[tuple[int, str], str]]:
    """((document, number), sentence) of an SGML file of WMT."""
    text = "".join(line for _, line in _lines(url))
    found: list[tuple[tuple[int, str], str]] = []
    for document, part in enumerate(_SYSTEM.split(text)[1:]):
        for number, segment in _SEGMENT.findall(part):
            found.append(((document, number), " ".join(html.unescape(segment).split())))
    if not found:
        raise InputError(f'{url}: found no <seg id="...">, expected the sentences of newstest2014')
    return found


def _paragraphs(url: str) -> Iterator[Any]:
    """The paragraphs of a SQuAD file."""
    try:
        with fsspec.open(url, "rb") as file:
            data = json.load(file)["data"]
        for article in data:
            for paragraph in article["paragraphs"]:
                if not paragraph["context"].strip() or any(
                    not question["question"].strip() or any(not answer["text"] for answer in question["answers"])
                    for question in paragraph["qas"]
                ):
                    raise InputError(f"{url}: {article['title']}: found an empty text, expected passages and questions")
                yield paragraph
    except OSError as error:
        raise unreadable(url, error) from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{url}: found {error!r}, expected SQuAD's format") from error


def _is_pairs(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) and part for part in pair)
            for pair in value
        )
    )
