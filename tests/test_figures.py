"""A figure that stands on several pages is the same on each; the first page has none that stands nowhere else.

`tests/figures.toml` has the figures, and patterns of the words around them on each page, whose line breaks are blanks.
Each pattern has to be found: who rewrites a sentence names its new words there. Of several precisions (2.83x, "2.8
times") the coarser ones are the finest one rounded.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = "README.md"
X = r"\d+(?:\.\d+)?"
_PARTS = {"{N}": r"(\d+(?:,\d{3})*(?:\.\d+)?)", "{X}": X, "{S}": rf"{X}(?:±{X})?"}
"""What the table writes for a figure, another number, a score with its error."""


def figures() -> dict[str, dict[str, list[str]]]:
    """The table: figure -> page -> patterns."""
    text = (ROOT / "tests" / "figures.toml").read_text(encoding="utf-8")
    table: dict[str, dict[str, list[str]]] = tomllib.loads(text)
    for patterns in (patterns for figure in table.values() for patterns in figure.values()):
        patterns[:] = [re.sub(r"\{[NXS]\}", lambda part: _PARTS[part[0]], pattern) for pattern in patterns]
    return table


FIGURES = figures()
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


def found(figure: Mapping[str, list[str]], pages: Mapping[str, str]) -> list[tuple[str, str, str]]:
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
    numbers = list(re.finditer(rf"{X}(?:,\d{{3}})*", prose))
    assert len(numbers) > 30
    assert [
        prose[max(0, match.start() - 40) : match.end() + 20]
        for match in numbers
        if not any(start <= match.start() and match.end() <= end for start, end in known)
    ] == [], "each is a figure of the table, which another page has, or no result"
    assert [name for name, figure in FIGURES.items() if len(figure) < 2] == [], "one page has nothing to agree with"


@pytest.mark.parametrize("page", ["results/real-books", "results/imported"])
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
            scores = {name: re.match(X, rows[name][column]) for name in ("mnli_m", "mnli_mm", *_TASKS)}
            if average[column] and all(scores.values()):
                values = {name: float(match[0]) for name, match in scores.items() if match}
                mean = ((values["mnli_m"] + values["mnli_mm"]) / 2 + sum(values[name] for name in _TASKS)) / 12
                assert float(average[column]) == pytest.approx(mean, abs=0.1), (page, rows[""][column])
                checked += 1
    assert checked >= 4
