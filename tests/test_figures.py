"""A figure that stands on several pages is the same on each; the first page has none that stands nowhere else.

A figure is what the group of a pattern finds in a page whose line breaks are blanks. Each pattern has to be found: who
rewrites a sentence names its new words here. Of several precisions (2.83x, "2.8 times") the coarser ones are the finest
one rounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = "README.md"
BOOKS, IMPORTED, INDEX = "results/real-books", "results/imported", "results/index"
WORLD, HOUR, OWN = "results/generated-world", "tutorials/first-hour", "tutorials/own-task"
TABLE, GPU = "tests/benchmarks/TABLE.md", "tests/benchmarks/GPU.md"
N = r"(\d+(?:,\d{3})*(?:\.\d+)?)"
"""A number, as a group."""
_X = r"\d+(?:\.\d+)?"
_SCORE = rf"{_X}(?:±{_X})?[°*]*"

FIGURES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "average of best on 73 books": {
        README: (rf"novels\): average {N}",),
        INDEX: (rf"preset `best` {N} on average", rf"GPT-1, average of twelve tasks \| {N}"),
        BOOKS: (
            rf"`best` has an average of \*\*{N}",
            rf"`best` has {N} on average",
            rf"average\*\* \| \*\*{N}\*\* \| \|",
        ),
        IMPORTED: (rf"bring {N} \(`best`", rf"average of twelve\*\* \| \*\*{_X}\*\* \| {_X} \| {N}"),
    },
    "average of n-grams alone": {
        README: (rf"n-grams alone {N}",),
        BOOKS: (rf"which it counts beside its network, have {N} on average", rf"by their test rows\) they have {N}"),
    },
    "average of the other floors": {
        README: (rf"other floors {N}",),
        INDEX: (rf"best floor {N}; the paper",),
        BOOKS: (rf"needs no network {N} and", rf"average\*\* \| \*\*{_X}\*\* \| \| \| {_X} \| {N}"),
        IMPORTED: (rf"average of twelve\*\* \| \*\*{_X}\*\* \| {N}",),
    },
    "average of the paper": {
        README: (rf"floors {_X}, GPT-1 {N}", rf"average {_X} {_X} {_X} {N}"),
        HOUR: (rf"average {_X} {_X} {_X} {N}",),
        INDEX: (rf"best floor {_X}; the paper {N}", rf"real-books.md#ten-million[^)]*\)\) \| {N}"),
        BOOKS: (rf"and the paper {N}\.",),
        IMPORTED: (rf"goal is GPT-1's {N}",),
    },
    "words of 73 books": {
        README: (rf"`best`, {N} million words",),
        BOOKS: (rf"From {N} million words", rf"the 73 files have {N} million", rf"73 novels of {N} million words"),
    },
    "BLiMP of best": {
        INDEX: (rf"BLiMP: OPT-125m \| \[{N}\]",),
        BOOKS: (rf"\| BLiMP \| {N}", rf"\*\*mean\*\* \| \*\*{N}"),
        IMPORTED: (rf"of 73 novels has {N}",),
    },
    "BLiMP of OPT-125m": {
        INDEX: (rf"\(`best`\) \| {N} \|",),
        BOOKS: (
            rf"\| BLiMP \| {_X} \| \| \| {_X} \| \| {N}",
            rf"\*\*mean\*\* \| \*\*{_X}\*\* \| {N}",
            rf"10 M words, {N}",
        ),
    },
    "average of MiniLM": {
        INDEX: (rf"MiniLM {N} on average",),
        IMPORTED: (rf"trained has {N} on average", rf"average of twelve\*\* \| \*\*{N}"),
        "howto/checkpoints": (rf"has \[{N} on average\]",),
    },
    "average of the demo": {
        README: (rf"average {N} {_X} {_X} {_X}",),
        HOUR: (rf"average {N} {_X} {_X} {_X}",),
        WORLD: (rf"GPT-1 reaches {N} on average", rf"with each other, not with {N}\."),
        INDEX: (rf"GPT-1 {N} on average, random",),
    },
    "average of the demo's random weights": {
        README: (rf"average {_X} {N} {_X} {_X}",),
        HOUR: (rf"average {_X} {N} {_X} {_X}",),
        WORLD: (rf"on average there, from random weights {N}",),
        INDEX: (rf"random weights {N}, best",),
    },
    "average of the demo's floors": {
        README: (rf"average {_X} {_X} {N} {_X}",),
        HOUR: (rf"average {_X} {_X} {N} {_X}",),
        WORLD: (rf"the best floor is {N}\*\*",),
        INDEX: (rf"random weights {_X}, best floor {N}",),
    },
    "RTE of the demo": {README: (rf"rte dev {N}",), HOUR: (rf"rte dev {N}",)},
    "SST-2 of the demo": {README: (rf"sst2 dev {N}",), HOUR: (rf"sst2 dev {N}",)},
    "average of the demo on a Xeon": {README: (rf"\({N} on a Xeon",), WORLD: (rf"in float32, come to {N} on average",)},
    "spread of the demo's tasks": {README: (rf"up to {N} points apart",), WORLD: (rf"up to {N} points apart",)},
    "seconds of the demo, least": {README: (rf"`make demo` then {N} to",), WORLD: (rf"took {N} and",)},
    "seconds of the demo, most": {
        README: (rf"`make demo` then {_X} to {N} s",),
        HOUR: (rf"which took {N} s",),
        WORLD: (rf"took {_X} and {N} s",),
        "tests/benchmarks/PROFILES.md": (rf"Where its {N} s go",),
    },
    "minutes of the tests": {README: (rf"`make test` {N} minutes",), "howto/contributing": (rf"suite \({N} minutes",)},
    "books of the demo": {README: (rf"world \({N} books",), HOUR: (rf"world \({N} books",)},
    "rows of an own task": {README: (rf"they are {N} sentences",), OWN: (rf"share of the {N} rows",)},
    "an own task": {README: (rf"mood dev {N}",), OWN: (rf"reviews dev {N}",)},
    "floor of an own task": {README: (rf"mood dev {_SCORE} {N}",), OWN: (rf"reviews dev {_SCORE} {N}",)},
    "an own task without any setting": {
        WORLD: (rf"preset, demo \| {N}",),
        "howto/own-tasks": (rf"in either, reached {N}",),
    },
    "the same with the rate of the preset paper": {
        WORLD: (rf"of the preset paper \| {N}",),
        "howto/own-tasks": (rf"preset's rate {N}",),
    },
    "an update beside transformers": {
        README: (rf"at {N} times transformers' speed",),
        INDEX: (rf"update at 117 M: {N} times",),
        "results/speed": (rf"published size is {N} times",),
        TABLE: (rf"\| update, 117 M, [^|]*\|[^|]*\|[^|]*\| {N}x",),
    },
    "an update beside transformers, compiled": {
        README: (rf"on a CPU, {N} times when",),
        "results/speed": (rf"as fast as transformers', {N} times",),
        TABLE: (rf"\| update, 117 M, [^|]*\|[^|]*\|[^|]*\| {_X}x, {N}x",),
    },
    "text to ids beside ftfy and spaCy": {
        README: (rf"text to ids at {N} times",),
        "results/speed": (rf"text becomes ids {N} times",),
        TABLE: (rf"raw text -> ids, [^|]*\|[^|]*\|[^|]*\| {N}x",),
    },
    "requests a second": {
        INDEX: (rf"{N} requests of a row a second",),
        "results/serving": (rf"answers {N} single-row requests", rf"requests of a row, 16 clients \| {N}/s"),
        TABLE: (rf"requests of a row, 16 clients \| {N}/s",),
    },
    "99th percentile of a request": {
        INDEX: (rf"16 clients, p99 {N} ms",),
        "results/serving": (rf"requests of a row, 16 clients \| {_X}/s, p99 {N} ms",),
        TABLE: (rf"requests of a row, 16 clients \| {_X}/s ±{_X}%, p99 {N} ms",),
    },
    "tokens a second on a GPU": {
        INDEX: (rf"{N} tokens/s at 117 M",),
        GPU: (rf"GPT-1 makes {N} tokens", rf"GPT-1 117M, 64 x 512 \| {N} tokens/s"),
    },
    "trials of faults": {README: (rf"{_X} of {N} trials with",), "operation/faults": (rf"{N} trials took",)},
    "trials that went well": {README: (rf"{N} of {_X} trials with",), "operation/faults": (rf": {N} went well",)},
    "the paper's QNLI": {README: (rf"paper's {N} is on version 1",), "explanation/protocol": (rf"paper's {N} is on",)},
    "what pre-training brings in Table 5": {
        INDEX: (rf"pre-training \+{N} \(the paper", rf"what pre-training brings \| \+{N}"),
        "results/analyses": (rf"Pre-training helps \(\+{N} on average", rf"On average \(\+{N}\)"),
    },
}

NO_RESULT = (
    r"`[^`]*`",  # code
    r"\]\([^)]*\)|\[\w+\]: \S+",  # where a link leads to
    r"GPT-[12]",
    r"Python \(3\.11 to 3\.14\)",
    r"127\.0\.0\.1",
    r"a 4-layer Transformer",
    r"117 M weights",  # a published size
    r"QNLI is version 2|is on version 1",
    r"One H100",
    r"S3",
)
"""What numbers of the first page's prose are none that was measured."""

_DEMO = re.compile(r"<!-- demo:begin -->.*?<!-- demo:end -->", re.DOTALL)  # tests/test_readme.py holds it to a run
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_TASKS = ("snli", "scitail", "qnli", "rte", "storycloze", "race", "cola", "sst2", "mrpc", "stsb", "qqp")


def path_of(page: str) -> Path:
    """The file of a page: by its path, or by its name among those of the site."""
    return ROOT / page if page.endswith(".md") else ROOT / "infra" / "docs" / f"{page}.md"


def in_a_line(text: str) -> str:
    """A page without line breaks, and without the marks of a score that stands below a floor."""
    return " ".join(text.replace("°", "").split())


PAGES = {page: path_of(page).read_text(encoding="utf-8") for figure in FIGURES.values() for page in figure}


def found(figure: Mapping[str, tuple[str, ...]], pages: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Page, pattern and number of each place where a figure stands."""
    return [
        (page, pattern, match[1])
        for page, patterns in figure.items()
        for pattern in patterns
        for match in re.finditer(pattern, in_a_line(pages[page]))
    ]


def agree(numbers: list[str]) -> bool:
    """Whether all are the finest one, rounded."""
    values = [Decimal(number.replace(",", "")) for number in numbers]
    finest = min(values, key=lambda value: int(value.as_tuple().exponent))
    return all(finest.quantize(value, rounding=ROUND_HALF_UP) == value for value in values)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_same_wherever_it_stands(name: str) -> None:
    figure = FIGURES[name]
    places = found(figure, PAGES)
    missing = [(page, each) for page in figure for each in figure[page] if (page, each) not in [p[:2] for p in places]]
    assert missing == [], "sentences that are no more there: where does the figure stand now?"
    assert agree([number for _, _, number in places]), "\n".join(f"{page}: {number}" for page, _, number in places)


@pytest.mark.parametrize("name", FIGURES)
def test_another_number_on_one_of_the_pages_would_be_noticed(name: str) -> None:
    figure = FIGURES[name]
    for page, pattern, number in found(figure, PAGES):
        other = in_a_line(PAGES[page])
        match = re.search(pattern, other)
        assert match is not None
        higher = f"{Decimal(number.replace(',', '')) + 1}"
        changed = PAGES | {page: other[: match.start(1)] + higher + other[match.end(1) :]}
        assert not agree([each for _, _, each in found(figure, changed)]), (page, pattern)


def test_every_number_of_the_first_page_stands_elsewhere_or_is_no_result() -> None:
    prose = in_a_line(_FENCED.sub(" ", _DEMO.sub(" ", PAGES[README])))
    known = [match.span() for pattern in NO_RESULT for match in re.finditer(pattern, prose)]
    for figure in FIGURES.values():
        known += [match.span(1) for each in figure.get(README, ()) for match in re.finditer(each, prose)]
    numbers = list(re.finditer(rf"{_X}(?:,\d{{3}})*", prose))
    assert len(numbers) > 30
    assert [
        prose[max(0, match.start() - 40) : match.end() + 20]
        for match in numbers
        if not any(start <= match.start() and match.end() <= end for start, end in known)
    ] == [], "each is a figure of the table above, which another page has, or no result"
    assert [name for name, figure in FIGURES.items() if len(figure) < 2] == [], "one page has nothing to agree with"


@pytest.mark.parametrize("page", [BOOKS, IMPORTED])
def test_an_average_of_a_table_is_that_of_its_rows(page: str) -> None:
    """Over the twelve, MNLI's halves as one; a column that lacks a task has no average."""
    checked = 0
    for table in re.findall(r"(?:^\|.*\n)+", PAGES[page], re.MULTILINE):
        cells = [[cell.strip(" *\\°") for cell in line.strip("|").split("|")] for line in table.splitlines()]
        rows = {row[0].removesuffix(", test"): row for row in cells}
        (average,) = [row for name, row in rows.items() if name.startswith("average")] or [None]
        if average is None or not {"mnli_m", "mnli_mm", *_TASKS} <= set(rows):
            continue
        for column in range(1, len(average)):
            scores = {name: re.match(_X, rows[name][column]) for name in ("mnli_m", "mnli_mm", *_TASKS)}
            if average[column] and all(scores.values()):
                values = {name: float(match[0]) for name, match in scores.items() if match}
                mean = ((values["mnli_m"] + values["mnli_mm"]) / 2 + sum(values[name] for name in _TASKS)) / 12
                assert float(average[column]) == pytest.approx(mean, abs=0.1), (page, rows[""][column])
                checked += 1
    assert checked >= 4
