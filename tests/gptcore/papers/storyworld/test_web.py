"""The generated web and the sets that prompts are tried on: what they promise, what they hold out, that it is read."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.config.sizes import PROMPT_SETTINGS
from gptcore.papers.prompting import reading
from gptcore.papers.prompting import rows as prompt_rows
from gptcore.papers.prompting.rows import digest
from gptcore.papers.prompting.tasks import PROMPT_TASKS, available_prompt_tasks, read_rows
from gptcore.papers.storyworld import web
from gptcore.papers.storyworld.beyond import ROWS, prompted
from gptcore.papers.storyworld.formats import Writer
from gptcore.papers.storyworld.lexicon import KINDS, Words
from gptcore.papers.storyworld.narrate import key

seeds = st.integers(0, 10**9)
WORDS = Words()


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Writer]:
    """The seven sets, and who wrote them."""
    writer = Writer(tmp_path_factory.mktemp("datasets"), 5)
    prompted(writer)
    return str(writer.folder), writer


def test_the_same_seed_gives_the_same_web() -> None:
    pages = [web.web(Random("a"), set(), 40), web.web(Random("a"), set(), 40), web.web(Random("b"), set(), 40)]
    assert pages[0] == pages[1] != pages[2]
    assert all(set(json.loads(line)) == {"text"} for line in pages[0].splitlines())
    assert len(pages[0].splitlines()) == 40
    words = [len(json.loads(line)["text"].split()) for line in pages[0].splitlines()]
    assert min(words) >= PROMPT_SETTINGS["demo"]["model"]["n_ctx"], "or the last positions are never learnt"


def test_no_text_of_the_web_is_a_held_out_one(sets: tuple[str, Writer]) -> None:
    free = [json.loads(line)["text"] for line in web.web(Random(1), set(), 1500).splitlines()]
    shown = {key(line.partition(" = ")[0]) for page in free for line in page.split("\n") if " = " in line}
    shown |= {
        key(part.partition("\n")[0].removeprefix("Review: ").replace(" -> ", " "))
        for page in free
        for part in page.split("\n\n")
    }
    shown |= {key(part.replace(" -> ", " ")) for page in free for part in page.split("\n\n")}
    held_out = sets[1].held_out | set(sorted(shown)[::2])  # with some that the same seed would show
    pages = [json.loads(line)["text"] for line in web.web(Random(1), held_out, 1500).splitlines()]
    lines = {key(line.partition(" = ")[0]) for page in pages for line in page.split("\n") if " = " in line}
    asked = {key(part.partition("\nQ: ")[0]) for page in pages for part in page.split("\n\n") if "\nQ: " in part}
    told = {key(part.partition("\nTL;DR:")[0]) for page in pages for part in page.split("\n\n") if "TL;DR" in part}
    tales = {key(part) for page in pages for part in page.split("\n\n") if " So " in part or " Now " in part}
    games = {key(part.replace(" -> ", " ")) for page in pages for part in page.split("\n\n") if " -> " in part}
    reviews = {
        key(part.partition("\n")[0].removeprefix("Review: "))
        for page in pages
        for part in page.split("\n\n")
        if part.startswith("Review: ")
    }
    found = (lines, asked, told, tales, games, reviews)
    assert min(map(len, found)) > 50
    assert not set().union(*found) & held_out


@given(seeds)
def test_the_tongue_of_the_coast_is_word_for_word(seed: int) -> None:
    rng = Random(seed)
    text = web.plain(rng, WORDS).text
    found = web.tidal(text)
    assert len(found.split()) == len(text.split())
    assert found == web.tidal(text)
    for ours, theirs in zip(text.split(), found.split(), strict=True):
        assert (ours[-1] == ".") == (theirs[-1] == ".")
        assert (ours == theirs) == (ours.rstrip(".") in {person.name for person in WORDS.people})


@given(seeds)
def test_answers_stand_in_their_passages(seed: int) -> None:
    found = web.asked(Random(seed), WORDS)
    for question, answer in found.questions:
        assert question.endswith("?")
        assert answer == web.UNKNOWN or answer.lower() in found.passage.lower()
    assert sum(answer == web.UNKNOWN for _, answer in found.questions) <= 1


@given(seeds)
def test_a_game_has_one_label_a_kind(seed: int) -> None:
    for make in (web.recall, web.sorting):
        found = make(Random(seed), WORDS)
        of = {thing: kind.name for kind in KINDS for thing in kind.members}
        kinds = {label: {of[word] for word, its in found.lines if its == label} for label in found.labels}
        assert [len(names) for names in kinds.values()] == [1, 1]
        *above, (word, label) = found.lines
        assert ((word, label) in above) == (make is web.recall)
        assert label in {its for _, its in above}


@given(seeds)
def test_the_last_word_of_a_passage_follows_from_it(seed: int) -> None:
    passage, last = web.cloze(Random(seed), WORDS)
    assert last in passage.replace(".", " ").split()
    text, pronoun, names, right = web.schema(Random(seed), WORDS)
    assert right in names
    assert (" does not have " in text) == (right == names[0])
    assert f"Now {pronoun} " in text


def test_every_set_is_read_and_right(sets: tuple[str, Writer]) -> None:
    url = sets[0]
    named = {name for name, task in PROMPT_TASKS.items() if (Path(url) / task.folder).is_dir()}
    cloze = {"lambada", "lambada-cloze", "cbt-cn", "cbt-ne", "dprd"}
    generated = {"summaries", "summaries-no-hint", "en-fr", "fr-en", "squad"}
    assert named == cloze | generated | {"recall", "sorting"}
    assert set(available_prompt_tasks(url)) == named
    for name in sorted(named):
        rows = read_rows(PROMPT_TASKS[name], url)
        assert len(rows.asked) == {"dprd": ROWS // 2, "squad": 4 * ROWS}.get(name, ROWS)
        assert digest(rows) == digest(read_rows(PROMPT_TASKS[name], url))
    there, back = reading.translations(url, "en", "fr").asked, reading.translations(url, "fr", "en").asked
    assert [item.question for item in there] == [f"{item.answers[0]} =" for item in back]
    data = json.loads((Path(url) / "SQuAD/dev-v2.0.json").read_text())
    paragraphs = data["data"][0]["paragraphs"]
    unanswered = 0
    for paragraph in paragraphs:
        for asked in paragraph["qas"]:
            unanswered += asked["is_impossible"]
            for answer in asked["answers"]:
                start = answer["answer_start"]
                assert paragraph["context"][start : start + len(answer["text"])] == answer["text"]
    assert 0 < unanswered < len(paragraphs)


def test_questions_are_a_conversation(sets: tuple[str, Writer]) -> None:
    items = reading.questions(sets[0]).asked
    assert [len(item.earlier or ()) for item in items[:5]] == [0, 1, 2, 3, 0]
    assert items[3].earlier == tuple(item.shown for item in items[:3])
    assert items[0].context == items[3].context != items[4].context


def test_of_a_game_the_last_line_is_asked(sets: tuple[str, Writer]) -> None:
    items = reading.games(sets[0], "recall").asked
    game = json.loads((Path(sets[0]) / "Games/recall.jsonl").read_text().splitlines()[0])
    assert items[0].question == f"\n{game['lines'][-1][0]} ->"
    assert items[0].shown[1] == game["lines"][-1][1]
    assert items[0].earlier == tuple((f"\n{word} ->", label) for word, label in game["lines"][:-1])


@settings(max_examples=20)
@given(seeds)
def test_schemas_in_words(seed: int) -> None:
    text, _, names, right = web.schema(Random(seed), WORDS)
    from gptcore.nlu.readers.winograd import Pronoun

    before, _, after = text.partition(" Now ")
    schema = Pronoun(f"{before} Now", f"{after.partition(' ')[2]}", names, names.index(right))
    (item,) = prompt_rows._schemas([schema])
    assert item.shown == (f"{before} Now {right}", schema.after)
    assert web.told_of(text, names)[names.index(right)] == f"{before} Now {right} {schema.after}."


@given(seeds, st.booleans())
def test_the_word_that_is_left_out_follows_from_what_was_told(seed: int, name: bool) -> None:
    found = web.blank(name, Random(seed), WORDS)
    assert len(found.sentences) == 21
    assert [text.count("XXXXX") for text in found.sentences] == [0] * 20 + [1]
    assert found.answer in " ".join(found.sentences[:20])
    assert len(set(found.candidates)) == 10
    assert found.answer in found.candidates
    assert all((word in {person.name for person in WORDS.people}) == name for word in found.candidates)
