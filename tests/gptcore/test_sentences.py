"""Where sentences end: at stops, not at abbreviations, at blank lines, and never with nothing in them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gptcore.text.spacy_words import split_sentences

CASES = {
    "It rained. Mr. Brown went home! Did he?": ["It rained.", "Mr. Brown went home!", "Did he?"],
    "CHAPTER I\n\nIt was late.": ["CHAPTER I", "It was late."],
    "“Stop!” he said. “No.”\n \t \nOnce": ["“Stop!”", "he said.", "“No.”", "Once"],
    "a line\nthat goes on. And": ["a line\nthat goes on.", "And"],
    " \n\n . \n\n\n": ["."],
    "He said. “No.” (Why?) 'No.'": ["He said.", "“No.”", "(Why?)", "'No.'"],
    "": [],
    "no stop at all": ["no stop at all"],
}


@pytest.mark.parametrize(("text", "expected"), CASES.items())
def test_sentences(text: str, expected: list[str]) -> None:
    assert list(split_sentences(text)) == expected


def test_no_character_but_white_space_is_lost() -> None:
    text = "Who's there? Nobody... “Well,” she said; 3.5 miles (or so!) to go.\n\n— A. B. Smith\n" * 50
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_spacy_comes_when_the_first_text_does_and_without_torch() -> None:
    code = (
        "import sys; from gptcore.text.spacy_words import split_sentences; assert 'spacy' not in sys.modules;"
        "list(split_sentences('A b. C d.')); assert 'spacy' in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
