"""Gutenberg's headers and licences are cut, in all their wordings; nothing else ever is."""

from __future__ import annotations

import gzip
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.text.gutenberg import HEADER, LICENCE, strip_gutenberg
from tests.expected import expected
from tests.realdata import real_data

LAST = "This Web site includes how to\nsubscribe to our email newsletter to hear about new eBooks.\n"
BODY = "CHAPTER I\n\nIt was a dark night. *** It rained. ***\n\n* * *\n\nThe end.\n"


def strip(text: str, size: int = 1 << 18) -> str:
    return "".join(strip_gutenberg(text[start : start + size] for start in range(0, len(text), size)))


@pytest.mark.parametrize(("start", "end"), expected(__file__, "test_every_wording_of_the_markers"))
@pytest.mark.parametrize("last", [LAST, ""])
@pytest.mark.parametrize("size", [1, 7, 1 << 18])
def test_every_wording_of_the_markers(start: str, end: str, last: str, size: int) -> None:
    text = f"The Project Gutenberg EBook of Emma\n\nlegal\n\n{start}\n\n{BODY}\n{end}\n\nlicence\n{last}"
    assert strip(text, size).strip() == BODY.strip()


def test_credits_behind_the_header_go_too() -> None:
    start = "The Project Gutenberg eBook\n*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***\n"
    assert strip(f"{start}\n\nProduced by Anna Bee\nand a team\n\n{BODY}").strip() == BODY.strip()
    assert strip(f"{start}\n\nProduced by magic\n").strip() == ""
    assert strip(f"{start}\n\nIt was\nProduced by magic\n").strip() == "It was\nProduced by magic"


HEAD = "The Project Gutenberg eBook\n*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***\n"
HTML = """Note: Project Gutenberg also has an HTML version of this
      file which includes the original illustrations.
      See 1-h.htm or 1-h.zip:
      (http://www.gutenberg.org/files/1/1-h.zip)
"""


@pytest.mark.parametrize("notes", expected(__file__, "test_what_is_said_of_the_file_behind_the_header_goes"))
@pytest.mark.parametrize("size", [1, 1 << 18])
def test_what_is_said_of_the_file_behind_the_header_goes(notes: str, size: int) -> None:
    assert strip(f"{HEAD}\n\n{notes}\n\n{BODY}", size).strip() == BODY.strip()
    assert (
        strip(f"{HEAD}\n\nIt was dark.\n\n{notes}\n\n{BODY}", size).strip().startswith("It was dark.\n\n" + notes[:9])
    )
    assert strip(f"{notes}\n\n{BODY}", size) == f"{notes}\n\n{BODY}", "without a header it is the text"


def test_a_title_that_is_closed_on_a_line_of_its_own() -> None:
    start = "The Project Gutenberg eBook\n*** START OF THE PROJECT GUTENBERG EBOOK EMMA\n\n***\n"
    assert strip(f"{start}\n\n\nProduced by Anna Bee\n\n{BODY}").strip() == BODY.strip()


@pytest.mark.parametrize("last", ["", "*** END: FULL LICENSE ***\n"])
@pytest.mark.parametrize("size", [1, 1 << 18])
def test_a_licence_that_goes_on_with_addresses_goes_whole(last: str, size: int) -> None:
    addresses = """
EBooks posted prior to November 2003, with eBook numbers BELOW #10000,
are filed in directories.

     http://www.gutenberg.net/etext06

An alternative method of locating eBooks:
     http://www.gutenberg.net/GUTINDEX.ALL

"""
    end = "*** END OF THE PROJECT GUTENBERG EBOOK EMMA ***"
    book = f"{HEAD}\n{BODY}\n{end}\n\nlegal\n{LAST}{addresses}{last}"
    assert strip(book, size).strip() == BODY.strip()
    assert strip(book + book, size).split() == (BODY + BODY).split(), "and the next book of the file stays"


def test_no_real_book_keeps_a_licence_or_loses_text() -> None:
    """Books of two collections, half of whose headers name another encoding than the files have, which is UTF-8."""
    leftover = re.compile(
        r"GUTINDEX|EBooks posted prior|END: FULL LICENSE|also has an HTML version|Project Gutenburg"
        r"|^(?:This e-?(?:book|text) was|E-?text prepared|Scanned (?:by|and)|Transcribed \d{4}"
        r"|Text file produced|Produced by)",
        re.MULTILINE | re.IGNORECASE,
    )
    files = [*real_data("books").iterdir(), *real_data("books-more").glob("*.txt.gz")]
    found, shares = [], []
    for path in files:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode().replace("\r\n", "\n")
        kept = strip(text)
        found += [(path.name, match[0]) for part in (kept[:3000], kept[-3000:]) for match in leftover.finditer(part)]
        shares.append(len(kept) / (len(text) - 20_000 * (len(text) != len(kept))))  # a header and a licence
    assert len(files) > 500
    assert not found
    assert min(shares) > 0.95


@settings(max_examples=200)
@given(st.text(st.sampled_from("a \n*\r.—é"), max_size=200), st.integers(1, 50))
def test_a_document_without_markers_is_untouched(text: str, size: int) -> None:
    assert strip(text, size) == text


@pytest.mark.parametrize(
    "text",
    [
        "a\n" * HEADER + "*** START OF THE PROJECT GUTENBERG EBOOK X ***\nfar behind any header\n",
        "no name here\n*** START OF THE EXPERIMENT ***\nb\n*** END OF THE EXPERIMENT ***\nc\n",
        "As the Project Gutenberg\nsays, End of Project Gutenberg's Etext\nbut no header\n",
        "x" * 3 * LICENCE,
    ],
)
def test_text_is_kept_where_markers_are_not_where_they_should_be(text: str) -> None:
    assert strip(text) == text


def test_text_behind_an_unknown_licence_is_kept() -> None:
    body = "a plain line\n" * LICENCE
    start, end = "*** START OF THE PROJECT GUTENBERG EBOOK X ***", "*** END OF THE PROJECT GUTENBERG EBOOK X ***"
    text = f"Project Gutenberg\n{start}\none\n{end}\n{body}"
    assert strip(text) == f"\none\n{body}"
    endless = "*** END OF THE PROJECT GUTENBERG EBOOK" + "x" * LICENCE
    assert len(strip(endless)) >= LICENCE


def test_several_books_in_one_file() -> None:
    draw = random.Random(0)
    book = (
        "The Project Gutenberg eBook of X\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\n"
        f"BODY\n*** END OF THE PROJECT GUTENBERG EBOOK X ***\nlicence\n{LAST}"
    )
    bodies = [f"body {number}\n" + "plain text here\n" * draw.randrange(5000) for number in range(5)]
    text = book.replace("BODY", bodies[0]) + bodies[1] + bodies[2] + book.replace("BODY", bodies[3]) + bodies[4]
    stripped = strip(text, 1000)
    assert all(body in stripped for body in bodies)
    assert "licence" not in stripped
    assert stripped.count("***") == 2  # a header in the middle of other text stays: it may be text


def test_real_books() -> None:
    folder = real_data("books")
    for path in sorted([*folder.glob("pg*.txt"), *folder.glob("*-0.txt")]):
        text = path.read_text(encoding="utf-8-sig")
        stripped = strip(text, 1 << 16)
        assert 15_000 < len(text) - len(stripped) < 25_000, path.name
        assert stripped in text
        assert "Gutenberg-tm" not in stripped
        assert "Foundation" not in stripped
        assert not any(mark in stripped for mark in ("PROJECT GUTENBERG EBOOK", "Distributed Proofreading"))
    for path in folder.glob("*_*.txt"):
        text = path.read_text(encoding="utf-8-sig")
        assert strip(text) == text
