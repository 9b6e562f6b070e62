"""Gutenberg's headers and licences are cut, in all their wordings; nothing else ever is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.text.gutenberg import HEADER, LICENCE, strip_gutenberg
from tests.realdata import real_data

LAST = "This Web site includes how to\nsubscribe to our email newsletter to hear about new eBooks.\n"
BODY = "CHAPTER I\n\nIt was a dark night. *** It rained. ***\n\n* * *\n\nThe end.\n"


def strip(text: str, size: int = 1 << 18) -> str:
    return "".join(strip_gutenberg(text[start : start + size] for start in range(0, len(text), size)))


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***", "*** END OF THE PROJECT GUTENBERG EBOOK EMMA ***"),
        (
            "*** START OF THIS PROJECT GUTENBERG EBOOK LITTLE\nWOMEN, AN OLD\nTALE ***",
            "End of the Project Gutenberg EBook of Little Women\n\n*** END OF THIS PROJECT GUTENBERG EBOOK LITTLE",
        ),
        ("***START OF THE PROJECT GUTENBERG EBOOK EMMA***", "***END OF THE PROJECT GUTENBERG EBOOK EMMA***"),
        (
            "***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***\nlegal\n"
            "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*",
            "End of Project Gutenberg's Etext of Emma",
        ),
        ("*END THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*", "End of The Project Gutenberg Etext of Emma"),
    ],
)
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


@settings(max_examples=200, deadline=None)
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
