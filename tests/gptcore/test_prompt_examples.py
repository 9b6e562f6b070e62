"""Which rows of a task are asked and which are shown as examples, on generated rows and hand-written ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gptcore.nlu.registry import REGISTRY
from gptcore.prompting import reading
from gptcore.prompting import rows as prompt_rows
from gptcore.prompting.assemble import draw_examples, select
from gptcore.prompting.items import MultipleChoice, WinogradSchema
from gptcore.prompting.tasks import prompt_task
from gptcore.storyworld.beyond import prompted
from gptcore.storyworld.formats import Writer, datasets
from tests.gptcore.test_prompting import model, put


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated sets in the public formats."""
    writer = Writer(tmp_path_factory.mktemp("world"), 11)
    datasets(writer)
    prompted(writer, 24)
    return writer.folder


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
