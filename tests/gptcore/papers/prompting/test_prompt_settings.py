"""The tables that choose settings and rows of prompts, against expectations typed from the papers, not from the code.

What a table says is pinned twice where that is possible: as it is written, and by what a model is then asked.
"""

from __future__ import annotations

import csv
import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gptcore.models.incremental import open_reader
from gptcore.nlu.readers import Example
from gptcore.nlu.registry import REGISTRY
from gptcore.papers.prompting import measures, reading, score
from gptcore.papers.prompting import rows as prompt_rows
from gptcore.papers.prompting.items import FreeForm, Graded, MultipleChoice, Rows, WinogradSchema
from gptcore.papers.prompting.likelihoods import said_words
from gptcore.papers.prompting.measures import bleu, rouge
from gptcore.papers.prompting.rows import dataset_item, draw_examples, select
from gptcore.papers.prompting.tasks import PROMPT_TASKS, PUBLISHED_PROMPTED, prompt_task
from gptcore.papers.storyworld.beyond import prompted
from gptcore.papers.storyworld.formats import Writer, datasets
from tests.expected import expected
from tests.gptcore.papers.prompting.test_prompting import TOKENIZER, model, put, task


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated sets in the public formats."""
    writer = Writer(tmp_path_factory.mktemp("world"), 11)
    datasets(writer)
    prompted(writer, 24)
    return writer.folder


# --- templates ---

# GPT-3's paper, appendix G: RTE "question: ... True or False?\nanswer:", ANLI "... True, False, or Neither?"
TEMPLATES: dict[str, tuple[str, dict[str, str]]] = expected(__file__, "TEMPLATES")


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_class_is_called_in_a_prompt(name: str) -> None:
    spec, (question, words) = REGISTRY[name], TEMPLATES[name]
    assert set(words) == set(spec.labels)
    for number, label in enumerate(spec.labels):
        row = Example(("one", "two")[: len(spec.fields)], (), float(number), "part", "file:1")
        item = dataset_item(spec, row)
        assert isinstance(item, MultipleChoice)
        assert (item.context, item.question, item.subset) == ("", question, "part")
        assert item.shown == (question, words[label])
        assert item.no_content == re.sub(r"\b(one|two)(?! mean)\b", "N/A", question)


def test_rows_of_choices_and_grades_are_asked_as_they_should_be() -> None:
    race = dataset_item(REGISTRY["race"], Example(("text", "who?"), ("a", "b", "c", "d"), 2.0, "race_m", "f:1"))
    assert race == MultipleChoice(
        "\nQuestion: who?\nAnswer:",
        ("a", "b", "c", "d"),
        2,
        context="text",
        no_content="\nQuestion: N/A\nAnswer:",
        subset="race_m",
    )
    story = dataset_item(REGISTRY["storycloze"], Example(("A. B. C. D.",), ("E.", "F."), 1.0, "", "f:1"))
    assert story == MultipleChoice("A. B. C. D.", ("E.", "F."), 1, no_content="N/A")
    likeness = dataset_item(REGISTRY["stsb"], Example(("one", "two"), (), 3.4, "", "f:1"))
    assert isinstance(likeness, Graded)
    assert likeness.question == "one\ntwo\nQuestion: How alike are they, from 0 to 5?\nAnswer:"
    assert likeness.answers == ("0", "1", "2", "3", "4", "5")
    assert (likeness.right, likeness.shown[1]) == (3.4, "3")
    assert {*TEMPLATES, "race", "storycloze", "stsb"} == set(REGISTRY)


# --- what decides a headline ---

# Task -> metric, normalisation of candidates, decoding of what the model writes. GPT-3, section 2.4: "for most tasks we
# compare the per-token likelihood", but ARC, OpenBookQA, and RACE. GPT-2, section 3.2: the candidate and the rest of
# its sentence; 3.6: 100 tokens, top-k random sampling with k = 2, the first 3 generated sentences; 3.7: greedy, the
# first generated sentence; 3.5: greedy.
SETTINGS: dict[str, tuple[str, str | None, dict[str, Any]]] = expected(__file__, "SETTINGS")
MEASURES, BASELINES = (expected(__file__, table) for table in ("MEASURES", "BASELINES"))
"""Task -> the name of a function of :mod:`gptcore.papers.prompting.measures`."""


def test_there_are_no_other_tasks() -> None:
    assert set(SETTINGS) == set(PROMPT_TASKS)


@pytest.mark.parametrize("name", SETTINGS)
def test_what_decides_a_headline(name: str) -> None:
    metric, normalisation, decoding = SETTINGS[name]
    found = prompt_task(name)
    assert found.metric == metric
    assert found.recorded["normalisation"] == normalisation
    assert {key: getattr(found.decoding, key) for key in decoding} == decoding
    assert (found.decoding is None) == (not decoding)
    for part, names in ((found.measure, MEASURES), (found.baselines, BASELINES)):
        assert part is (getattr(measures, names[name]) if name in names else None)
    assert found.word == (name in ("lambada", "lambada-cloze"))


@pytest.mark.parametrize(
    ("name", "chosen"), [("storycloze", "per token"), ("race", "unconditional"), ("recall", "total")]
)
def test_the_headline_is_the_score_by_the_tasks_own_normalisation(name: str, chosen: str, world: Path) -> None:
    rows = prompt_task(name).read(str(world))
    found = put(model(n_ctx=200), prompt_task(name), rows, max_rows=40)
    assert found.scores["score"] == found.scores[chosen]
    others = {"total", "per token", "unconditional", "contextual calibration"} & found.scores.keys() - {chosen}
    assert any(found.scores[other] != found.scores[chosen] for other in others), "or nothing was told apart"


# --- how answers are generated ---


def generated(name: str, rows: Rows, text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Any]:
    """What a task asks of the generator, and its result where that writes ``text``."""
    asked: dict[str, Any] = {}

    def written(model: Any, prompts: list[list[int]], **settings: Any) -> list[list[int]]:
        asked.update(settings, prompts=[TOKENIZER.decode(ids) for ids in prompts])
        return [TOKENIZER.encode(text) for _ in prompts]

    monkeypatch.setattr(score, "generate_ids", written)
    return asked, put(model(n_ctx=260), prompt_task(name), rows)


@pytest.mark.parametrize("name", [name for name, (_, _, decoding) in SETTINGS.items() if decoding])
def test_settings_reach_the_generator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    item = FreeForm("the cat", ("yes",), context="the dog sat on the mat")
    asked, found = generated(name, Rows([item]), "One. Two.\nThree. Four. Five.", monkeypatch)
    top_k = SETTINGS[name][2]["top_k"]
    assert asked["max_tokens"] == SETTINGS[name][2]["max_tokens"]
    assert (asked.get("top_k"), asked.get("temperature")) == ((None, 0.0) if top_k == 1 else (2, None))
    expected = "One. Two. Three." if name.startswith("summaries") else "One. Two."
    assert found.answers[0]["answer"] == expected
    line_break = TOKENIZER.encode("\n")[0]
    assert (line_break in asked["stop"]) == (not name.startswith("summaries"))


def test_every_row_has_draws_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows([FreeForm(f"{text}", ("yes",)) for text in ("the cat", "a mat", "who", "the dog sat")])
    asked, found = generated("summaries", rows, "x", monkeypatch)
    by_prompt = dict(zip(asked["prompts"], asked["seed"], strict=True))
    assert [by_prompt[item.shown[0]] for item in rows.asked] == [0, 1, 2, 3]
    assert found.rows == 4


@pytest.mark.parametrize(("name", "asked", "answer"), [("en-fr", "src.en", "ref.fr"), ("fr-en", "src.fr", "ref.en")])
def test_which_language_is_asked(name: str, asked: str, answer: str, world: Path) -> None:
    rows = prompt_task(name).read(str(world))
    question, translation = rows.asked[0].shown
    texts = [(world / "WMT14" / f"newstest2014-fren-{file}.sgm").read_text() for file in (asked, answer)]
    assert question.endswith(" =")
    assert f">{question.removesuffix(' =')}<" in texts[0]
    assert f">{translation}<" in texts[1]
    assert texts[0] != texts[1]
    assert (rows.separator, rows.examples_from) == ("\n", "other asked rows")


@pytest.mark.parametrize(("name", "above"), [("recall", True), ("sorting", False)])
def test_which_game_is_asked(name: str, above: bool, world: Path) -> None:
    for item in prompt_task(name).read(str(world)).asked:
        assert item.earlier is not None
        assert (item.shown[0] in {question for question, _ in item.earlier}) == above


@pytest.mark.parametrize(("name", "kind"), [("cbt-cn", "CN"), ("cbt-ne", "NE")])
def test_which_words_are_left_out(name: str, kind: str, world: Path) -> None:
    items = prompt_task(name).read(str(world)).asked
    answers = re.findall(r"\t(\w+)\t\t", (world / "CBT" / f"cbtest_{kind}_valid_2000ex.txt").read_text())
    assert [item.shown[1] for item in items] == [f"{word}." for word in answers]
    assert all(word.istitle() == (kind == "NE") for word in answers)


def test_drawn_answers_differ_from_greedy_ones() -> None:
    rows = Rows([FreeForm(text, ("x",)) for text in ("the cat", "a mat", "who", "the dog sat", "on the", "5")])
    made = functools.partial(task, "f1", measure=lambda answers, items: {"f1": 0.0})
    decoding = prompt_task("squad").decoding
    drawn = prompt_task("summaries").decoding
    assert decoding is not None
    assert drawn is not None
    texts = [
        [line["answer"] for line in put(model(n_ctx=260), made(decoding=each), rows).answers]
        for each in (decoding, drawn)
    ]
    assert texts[0] != texts[1]


@pytest.mark.parametrize(("name", "end"), [("summaries", "\nTL;DR:"), ("summaries-no-hint", "")])
def test_the_hint_stands_behind_the_article(
    name: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "CNNDM").mkdir()
    (tmp_path / "CNNDM" / "test.csv").write_text("article,highlights\nThe dog sat on the mat.,The dog sat.\n")
    asked, _ = generated(name, prompt_task(name).read(str(tmp_path)), "x", monkeypatch)
    assert asked["prompts"] == [f"The dog sat on the mat.{end}"]
    long = [["article", "highlights"], ["the dog sat " * 200, "Sat."]]
    with open(tmp_path / "CNNDM" / "test.csv", "w", newline="") as file:
        csv.writer(file).writerows(long)
    asked, _ = generated(name, prompt_task(name).read(str(tmp_path)), "x", monkeypatch)
    (prompt,) = asked["prompts"]
    assert prompt.startswith("the dog sat the dog")
    assert prompt.endswith(end)
    assert len(TOKENIZER.encode(prompt)) in range(150, 161)


def test_the_word_that_counts_is_the_one_that_is_said() -> None:
    gpt, texts = model(), ["the cat sat", "who", "a dog on the"]
    prompts = [TOKENIZER.encode(text) for text in texts]
    said = []
    for ids in prompts:
        reader = open_reader(gpt)
        said += said_words(reader, TOKENIZER, [ids], reader.feed([ids]))
    assert all(said)
    items = [FreeForm(texts[0], (said[0],)), FreeForm(texts[1], (f"not{said[1]}",)), FreeForm(texts[2], (said[2],))]
    found = put(gpt, task(decoding=prompt_task("lambada").decoding, measure=measures.last_word, word=True), Rows(items))
    assert found.scores["accuracy, no stop words"] == pytest.approx(2 / 3)


# --- how written answers are scored ---


def test_rouge_knows_stems_and_no_case() -> None:
    """The settings of See et al. 2017, whom GPT-2's Table 4 follows."""
    right = [FreeForm("?", ("The dogs were running.",))]
    assert rouge(["the dog was runs"], right)["rouge-1"] == pytest.approx(3 / 4)
    assert rouge(["the cat was green"], right)["rouge-1"] == pytest.approx(1 / 4)


def test_bleu_counts_case_over_the_whole_corpus() -> None:
    text = "Le Chat est sur le Tapis rouge de Marie."
    item = FreeForm("?", (text,))
    lower = bleu([text.lower()], [item])["bleu"]
    assert 0 < lower < 0.5
    assert bleu([text.replace("Marie.", "Marie .")], [item])["bleu"] == pytest.approx(1.0)  # 13a cuts marks off
    both = bleu([text, "un chien noir"], [item, FreeForm("?", ("Il pleut beaucoup dans la ville",))])["bleu"]
    assert both > 0.6, "the corpus' n-grams together; a mean over sentences would be a half"


# --- published numbers ---


def test_published_numbers_are_those_of_gpt_2s_paper() -> None:
    """Typed a second time: sections 3.2 to 3.7, Tables 3 and 4."""
    found = {name: [str(each) for each in scores] for name, scores in PUBLISHED_PROMPTED.items()}
    assert found == expected(__file__, "test_published_numbers_are_those_of_gpt_2s_paper")
    assert all(prompt_task(name).published == scores for name, scores in PUBLISHED_PROMPTED.items())
    for each in PUBLISHED_PROMPTED["summaries"]:
        assert sum(each.parts) / 3 == pytest.approx(each.score, abs=0.006)


def test_published_scores_are_of_scores_that_there_are() -> None:
    found = put(
        model(),
        task(decoding=prompt_task("lambada").decoding, measure=measures.last_word, word=True),
        Rows([FreeForm("the cat", ("mat",))]),
    )
    assert {each.of for each in PUBLISHED_PROMPTED["lambada"]} - {""} <= found.scores.keys()


# --- which rows are asked, and which are shown as examples ---


def test_the_dev_rows_are_asked_and_the_train_rows_are_shown(world: Path) -> None:
    """On generated rows, whose files are read here plainly."""
    for name, spec in REGISTRY.items():
        rows = prompt_task(name).read(str(world))
        if name in ("storycloze", "race", "mnli"):
            continue
        folder = world / spec.folder
        files = {split: (folder / spec.splits[split][0].path).read_text(encoding="utf-8") for split in ("dev", "train")}
        for part, split, other in ((rows.asked, "dev", "train"), (rows.pool, "train", "dev")):
            examples = part.examples  # type: ignore[attr-defined]
            assert all(
                json.dumps(row.fields[0])[1:-1] in files[split] or row.fields[0] in files[split] for row in examples
            )
            assert any(row.fields[0] not in files[other] for row in examples)
        assert rows.examples_from == "the train split"


@pytest.mark.parametrize(
    ("name", "asked", "shown"),
    [("race", "RACE/dev/middle", "RACE/train/middle"), ("mnli", "MNLI/dev_matched.tsv", "MNLI/train.tsv")],
)
def test_the_same_where_a_split_has_parts(name: str, asked: str, shown: str, world: Path) -> None:
    rows = prompt_task(name).read(str(world))

    def text(path: Path) -> str:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        return " ".join("".join(file.read_text(encoding="utf-8") for file in files).replace("\\n", " ").split())

    for part, there, not_there in ((rows.asked, asked, shown), (rows.pool, shown, asked)):
        first = part[0]
        assert isinstance(first, MultipleChoice)
        said = json.dumps(first.context or first.question.partition("\n")[0])[1:-1]
        assert said in text(world / there)
        assert said not in text(world / not_there)


def test_story_cloze_is_cut_as_the_original_code_cuts_it(world: Path) -> None:
    rows = prompt_task("storycloze").read(str(world))
    assert len(rows.asked) < len(rows.pool)


def test_schemas_of_the_test_file_are_asked(world: Path) -> None:
    rows = prompt_rows.dprd(str(world))
    for part, split in ((rows.asked, "test"), (rows.pool, "train")):
        text = (world / "DPRD" / f"{split}.c.txt").read_text(encoding="utf-8")
        assert len(part) == 12
        for item in part:
            assert isinstance(item, WinogradSchema)
            assert item.rest in text
            assert item.readings[0].partition(" Now ")[0] in text
    assert rows.examples_from == "the train split"


def test_a_winograd_schema_never_has_its_twin_as_an_example(tmp_path: Path) -> None:
    (tmp_path / "WSC273").mkdir()
    names = ("Ann", "Ben", "Cid", "Dan", "Eve", "Fay")
    blocks = [f"{a} saw Zoe because they {rest}.\nthey\n{a},Zoe\n{a}\n\n" for a in names for rest in ("fell", "sang")]
    (tmp_path / "WSC273" / "wsc273.txt").write_text("".join(blocks))
    rows = prompt_task("wsc273").read(str(tmp_path))
    assert len(rows.asked) == 12
    for number, row in enumerate(select(rows, 50).rows):
        assert len(row.examples) >= 9
        twin = rows.asked[number ^ 1]
        assert twin not in row.examples
        assert row.item not in row.examples
    assert rows.examples_from == "other asked rows"


def lambada(folder: Path, **files: str) -> str:
    (folder / "LAMBADA").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / "LAMBADA" / f"lambada_{name}_plain_text.txt").write_text(text)
    return str(folder)


@pytest.mark.parametrize("name", ["lambada", "lambada-cloze"])
def test_examples_of_lambada_are_from_the_development_file_where_that_is_beside_the_test_file(
    name: str, tmp_path: Path
) -> None:
    test, development = "he took the cake\nshe saw the dog\n", "they had the house\nwe rowed the boat\nit was the sea\n"
    read = prompt_task(name).read

    def words(items: Any) -> list[str]:
        return [item.shown[1] for item in items]

    alone = read(lambada(tmp_path, development=development))
    assert (words(alone.asked), list(alone.pool)) == (["house", "boat", "sea"], [])
    assert alone.examples_from == "other asked rows"
    both = read(lambada(tmp_path, test=test))
    assert (words(both.asked), words(both.pool)) == (["cake", "dog"], ["house", "boat", "sea"])
    assert both.examples_from == "the development file"
    for row in range(2):
        assert set(words(draw_examples(both, row, 3, 0))) == {"house", "boat", "sea"}
    found = put(model(), prompt_task(name), both, shots=1)
    assert found.examples_from == "the development file"
    (tmp_path / "LAMBADA" / "lambada_development_plain_text.txt").unlink()
    assert reading.lambada(str(tmp_path)).examples_from == "other asked rows"
