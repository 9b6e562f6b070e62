"""The generated world: the same bytes from the same seed, honest splits, true labels, public formats, its mark."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.base.filesystems import MARK, is_synthetic, mark_synthetic
from gptcore.nlu import REGISTRY, load_task
from gptcore.nlu.floors import bag_of_words, best_constant
from gptcore.papers.storyworld import facts, formats, lexicon, narrate, stories
from gptcore.papers.storyworld.__main__ import main
from gptcore.papers.storyworld.lexicon import PEOPLE, TOPICS, Words, named
from gptcore.papers.storyworld.narrate import key
from gptcore.papers.storyworld.write import generate
from tests.expected import expected
from tests.realdata import real_data

seeds = st.integers(0, 10**9)


@pytest.fixture(scope="module")
def small_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three short books and the full datasets."""
    out = tmp_path_factory.mktemp("world")
    generate(out, seed=5, books=3, characters=60_000, pages=80)
    return out


def tree(folder: Path) -> dict[str, str]:
    """Digest of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def squeezed(text: str) -> str:
    """The text without case, spaces, quotation marks and stops."""
    return re.sub(r"[^a-z-]", "", text.lower())


def texts(row: object) -> tuple[str, ...]:
    """The texts that identify an example: its fields, and for choices the choices too."""
    return (*row.fields, *row.choices)  # type: ignore[attr-defined]


def test_the_same_seed_gives_the_same_bytes_whatever_the_hash_order(small_world: Path, tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from gptcore.papers.storyworld import generate; "
    code += "generate(Path(sys.argv[1]), seed=5, books=3, characters=60_000, pages=80)"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "again")], check=True, env=environment)
    assert tree(tmp_path / "again") == tree(small_world)


def test_another_seed_gives_another_world(small_world: Path, tmp_path: Path) -> None:
    generate(tmp_path / "other", seed=6, books=3, characters=60_000, pages=80)
    ours, theirs = tree(small_world), tree(tmp_path / "other")
    assert not set(ours.values()) & set(theirs.values())
    assert {name for name in ours if name.startswith("datasets")} == {n for n in theirs if n.startswith("datasets")}


@pytest.mark.parametrize("name", REGISTRY)
def test_every_task_reads_balanced_and_disjoint(small_world: Path, name: str) -> None:
    spec = REGISTRY[name]
    train = load_task(name, str(small_world / "datasets"), "train")
    dev = load_task(name, str(small_world / "datasets"), "dev")
    assert 200 <= len(train) <= 1000
    assert 150 <= len(dev) <= 600
    if not spec.score_range:
        for rows, slack in ((train, 0.06), (dev, 0.2 if spec.holdout else 0.01)):
            counts = Counter(row.label for row in rows)
            assert max(counts.values()) - min(counts.values()) <= slack * len(rows)
    seen = {key(*texts(row)) for row in train}
    assert not any(key(*texts(row)) in seen for row in dev)


@pytest.mark.parametrize("name", ["snli", "sst2", "mrpc", "scitail"])
def test_some_words_of_dev_are_never_seen_in_train(small_world: Path, name: str) -> None:
    words = [
        {
            word
            for row in load_task(name, str(small_world / "datasets"), split)
            for text in texts(row)
            for word in text.split()
        }
        for split in ("train", "dev")
    ]
    assert len(words[1] - words[0]) > 25


@pytest.mark.parametrize("name", ["snli", "mnli", "rte", "qnli", "mrpc", "qqp", "stsb", "sst2", "cola"])
def test_no_held_out_row_is_told_in_a_book(small_world: Path, name: str) -> None:
    shelf = "".join(path.read_text() for path in sorted((small_world / "books").glob("*.txt")))
    sentences = [squeezed(sentence) for sentence in re.split(r"(?<=[.?])[\s\"]+", shelf)]
    told = set(sentences) | {first + second for first, second in itertools.pairwise(sentences)}
    dev = {squeezed("".join(row.fields)) for row in load_task(name, str(small_world / "datasets"), "dev")}
    assert len(told) > 1000
    assert not dev & told


def test_baselines_leave_room(small_world: Path) -> None:
    data = str(small_world / "datasets")
    for name, spec in REGISTRY.items():
        train, dev = load_task(name, data, "train"), load_task(name, data, "dev")
        assert bag_of_words(spec, train, dev)["score"] < 0.85, name
        assert best_constant(spec, train, dev)["score"] < 0.7, name


def test_dev_tells_of_turns_that_train_never_tells(small_world: Path) -> None:
    sides = [
        {side for row in load_task("rte", str(small_world / "datasets"), split) for side in turns(row.fields[0])}
        for split in ("train", "dev")
    ]
    assert len(sides[0]) > 60
    assert len(sides[1]) > 60
    assert not sides[0] & sides[1]


def turns(text: str) -> set[tuple[str, ...]]:
    """The clauses of the matters' two sides that a text tells, without their person."""
    told = (stripped(sentence) for sentence in re.split(r"(?<=\.) ", text))
    return {clause for clause in told if clause in SIDES}


# Formats


def test_quirks_of_the_public_files(small_world: Path) -> None:
    data = small_world / "datasets"
    assert (data / "MRPC/train.tsv").read_bytes().startswith(b"\xef\xbb\xbfQuality\t")
    assert not (data / "MRPC/test.tsv").read_bytes().startswith(b"\xef\xbb\xbf")
    assert (data / "CoLA/train.tsv").read_text().split("\t")[1] in "01"
    lines = [json.loads(line) for line in (data / "SNLI/snli_1.0_train.jsonl").read_text().splitlines()]
    assert any(line["gold_label"] == "-" for line in lines)
    sst = (data / "SST-2/train.tsv").read_text().splitlines()
    assert all(line == line.lower() for line in sst)
    assert (data / "StoryCloze/cloze_test_val__spring2016 - cloze_test_ALL_val.csv").is_file()
    passage = json.loads((data / "RACE/dev/high/1.txt").read_text())
    assert list(passage) == ["answers", "options", "questions", "article", "id"]
    assert all(b"\r" not in path.read_bytes() for path in data.rglob("*") if path.is_file())
    assert any('"' in line for line in (data / "MRPC/train.tsv").read_text().splitlines())


@pytest.mark.parametrize("file", expected(__file__, "test_headers_are_those_of_the_real_files"))
def test_headers_are_those_of_the_real_files(small_world: Path, file: str) -> None:
    real = real_data() / file
    if not real.is_file():
        pytest.skip(f"{file} is not among the real data")
    ours = (small_world / "datasets" / file).read_bytes().split(b"\n")[0]
    assert ours == real.read_bytes().split(b"\n")[0]


# Truth of what is said


@given(seeds)
@settings(max_examples=200)
def test_what_follows_is_never_ruled_out_and_answers_are_not_wrong(seed: int) -> None:
    s = facts.statement(Random(seed), Words())
    claims = [*s.entailed, *s.contradicted, *s.neutral, s.text]
    assert len(set(claims)) == len(claims)
    for question in s.questions:
        assert question.text.endswith("?")
        assert question.answer not in question.wrong
        assert len(set(question.wrong)) == 3


MEANING = {
    word: (group.name, group.opposite)
    for table in (lexicon.MOODS, lexicon.QUALITIES)
    for group in table
    for word in group.words
}


@given(seeds)
@settings(max_examples=100)
def test_qualities_follow_their_meaning(seed: int) -> None:
    """A plain twin: the label read off from the words' groups alone."""
    rng = Random(seed)
    s = facts.quality(rng, Words(), PEOPLE[0], lexicon.Word("lamp"))
    said = next(word for word in re.findall(r"\w+", s.text) if word in MEANING)
    for claims, label in ((s.entailed, "entailment"), (s.contradicted, "contradiction"), (s.neutral, "neutral")):
        for claim in claims:
            word = next(word for word in re.findall(r"\w+", claim) if word in MEANING)
            same, contrary = MEANING[word][0] == MEANING[said][0], MEANING[word][0] == MEANING[said][1]
            if " not " in claim:
                same, contrary = contrary, same
            assert label == ("entailment" if same else "contradiction" if contrary else "neutral"), (s.text, claim)


NAMES = {person.name for person in PEOPLE}
SIDES = {
    tuple(re.findall(r"\w+", stories.fill(clause, person).replace(person.name, "").lower())): (topic.name, well)
    for topic in TOPICS
    for well in (True, False)
    for clause in topic.side(well)
    for person in PEOPLE[:2]
}


def side_of(text: str) -> tuple[str, bool]:
    """The matter and the side that a clause belongs to, looked up without its person."""
    return SIDES[stripped(text)]


def stripped(text: str) -> tuple[str, ...]:
    """The words of a clause without its person."""
    return tuple(word.lower() for word in re.findall(r"\w+", text) if word not in NAMES)


@given(seeds, st.sampled_from(stories.NLI))
@settings(max_examples=100)
def test_clauses_stand_in_the_relation_asked_for(seed: int, relation: str) -> None:
    rng, matter = Random(seed), stories.some(Random(seed), Words())
    said = rng.choice(matter[0].side(matter[1]))
    clauses = said, stories.beside(rng, Words(), *matter, said, relation)
    (topic, well), (other, other_well) = (
        side_of(stories.fill(clause, person)) for clause, person in zip(clauses, rng.sample(PEOPLE, 2), strict=True)
    )
    assert clauses[0] != clauses[1]
    assert (topic == other) == (relation != "neutral")
    if relation != "neutral":
        assert (well == other_well) == (relation == "entailment")


@given(seeds)
@settings(max_examples=100)
def test_of_what_else_may_have_happened_one_option_fits(seed: int) -> None:
    passage = stories.what_else(Random(seed), Words())
    told = {side_of(sentence) for sentence in re.split(r"(?<=\.) ", passage.article)[1:]}
    assert len(told) == 1
    assert [side_of(option) in told for option in passage.options] == [True, False, False, False]
    about = stories.about(Random(seed), Words())
    assert about.options[0] == side_of(about.article.split(".")[0])[0]
    assert len(set(about.options)) == 4


def test_no_clause_is_told_of_two_matters() -> None:
    clauses = [clause for topic in TOPICS for clause in (*topic.starts, *topic.good, *topic.bad)]
    assert len(set(clauses)) == len(clauses)
    assert all(len(topic.good) == len(topic.bad) == 6 for topic in TOPICS)
    assert all("{a}" in clause for clause in clauses)


@given(seeds, st.booleans())
@settings(max_examples=100)
def test_science_hangs_on_the_kind(seed: int, entails: bool) -> None:
    premise, claim = facts.science(Random(seed), Words(), entails)
    kinds = {
        name: kind for kind in lexicon.KINDS for thing in (*kind.members, kind.name) for name in (thing, thing.many)
    }
    named = [[kinds[word] for word in re.findall(r"\w+", text.lower()) if word in kinds] for text in (premise, claim)]
    if named[1]:
        assert (named[0][0] == named[1][0]) == entails
    else:  # the claim that something alive is there
        assert named[0][0].made != entails


@given(seeds)
@settings(max_examples=60)
def test_grammar_twins_differ_and_stay_sentences(seed: int) -> None:
    for rule in stories.RULES:
        good, bad = rule(Random(seed), Words())
        assert good != bad
    assert stories.utterance(Random(seed), Words(), True)[0].isupper()


@given(seeds)
@settings(max_examples=100)
def test_endings_fit_or_contradict_the_tale(seed: int) -> None:
    tale = stories.tale(Random(seed), Words())
    topic, well = side_of(tale.lines[-1])
    moods = [named(lexicon.MOODS, mood).words for mood in ("happy", "sad")]
    for ending, fits in ((tale.right, True), (tale.wrong, False)):
        if stripped(ending) in SIDES:
            assert SIDES[stripped(ending)] == (topic, well == fits)
        else:
            assert ending.rstrip(".").split()[-1] in moods[well != fits]


@given(seeds)
@settings(max_examples=30)
def test_a_village_remembers_who_gave_what(seed: int) -> None:
    rng = Random(seed)
    village = narrate.new_village(rng, Words())
    owners = {thing: person.name for thing, person in village.owner.items()}
    for chapter in range(40):
        narrate.event(rng, Words(), village, chapter)
    for _, thing, giver, receiver in village.history:
        assert owners[thing] == giver
        owners[thing] = receiver
    assert owners == {thing: person.name for thing, person in village.owner.items()}


def test_train_words_are_a_part_of_each_group() -> None:
    part = Words().narrow(Random(3))
    for mine, whole in zip(part.qualities, lexicon.QUALITIES, strict=True):
        assert set(mine.words) < set(whole.words)
        assert len(mine.words) >= 2
    assert all(len(topic.good) == len(topic.bad) == 3 for topic in part.topics)
    assert len(part.praise) == len(lexicon.PRAISE) // 2


# Bad input


def test_a_folder_in_use_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="not an empty folder"):
        generate(tmp_path, seed=1)
    assert main([str(tmp_path), "--seed", "1"]) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_command_line_writes_a_world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "w"), "--seed", "2", "--books", "1", "--characters", "3000"]) == 0
    assert "synthetic" in capsys.readouterr().out
    assert len(list((tmp_path / "w/books").glob("*.txt"))) == 1
    assert main([str(tmp_path / "v"), "--books", "0"]) == 2


def test_every_book_has_chapters_that_carry_on(small_world: Path) -> None:
    for path in sorted((small_world / "books").glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        assert "Chapter 3" in text
        assert text.rstrip().endswith("The End")
        assert "Do you remember who gave away" in text
    assert sum(formats.SIZES["race"]) > 0


def test_a_generated_world_carries_the_mark_and_a_copy_keeps_it(tmp_path):
    generate(tmp_path / "world", 1, books=1, characters=500, pages=80)
    for folder in ("books", "datasets"):
        assert is_synthetic(str(tmp_path / "world" / folder))
        assert is_synthetic(f"{tmp_path}/world/{folder}/")
        assert "seed 1" in (tmp_path / "world" / folder / MARK).read_text(encoding="utf-8")
    assert is_synthetic(str(tmp_path / "world/books/*.txt"))
    assert is_synthetic(str(next((tmp_path / "world/books").glob("*.txt"))))
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "world/books") + "/", "memory://copy/books/", recursive=True)
    assert is_synthetic("memory://copy/books")


def test_other_folders_do_not(tmp_path):
    (tmp_path / "books").mkdir()
    (tmp_path / "books/a.txt").write_text("a book", encoding="utf-8")
    assert not is_synthetic(str(tmp_path / "books"))
    assert not is_synthetic("memory://nowhere/books")
    mark_synthetic(tmp_path / "books", 3)
    assert is_synthetic(str(tmp_path / "books/a.txt"))
    assert not is_synthetic(str(tmp_path))
