"""Answers from prompts through Prefect's harness: tables, curves, nothing twice, errors before any work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import main
from flows.papers.prompting.flow import few_shot
from flows.papers.prompting.forms import FewShotParameters
from gptcore.base.errors import InputError
from gptcore.config.sizes import PROMPT_SETTINGS, SIZES, sized_preset
from gptcore.papers.prompting.tasks import PROMPT_TASKS
from tasks.papers.prompting.stages import FILE
from tasks.report.analysis import Analysis
from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tests.expected import expected
from tests.flows.world import OVERRIDES

pytestmark = pytest.mark.usefixtures("prefect_server")

TASKS = ["sst2", "lambada", "dprd", "squad", "recall"]
SETTINGS: dict[str, Any] = {
    "corpus": OVERRIDES["corpus"],
    "tokenizer": OVERRIDES["tokenizer"],
    "model": {"n_ctx": 64},
    "pretrain": OVERRIDES["pretrain"],
}


def run(store: str, world: tuple[str, str], **fields: Any) -> list[Analysis]:
    web = str(Path(world[0]).parent / "web")
    given = {"store": store, "datasets": world[1], "tasks": TASKS, "shots": [2, 0], "max_rows": 6, **fields}
    if "checkpoints" not in given:
        given |= {"corpus": web, "overrides": SETTINGS}
    return few_shot(FewShotParameters(preset="demo", **given))


@pytest.fixture(scope="module")
def found(store: str, world: tuple[str, str], prefect_server: Path) -> list[Analysis]:
    return run(store, world)


def test_three_sizes_stand_beside_each_other(found: list[Analysis], store: str) -> None:
    shots, size = found
    names = [each.name for each in SIZES["demo"]]
    assert shots.header == ("task", "score", "shots", *names, "chance", "found room", "rows")
    assert list(dict.fromkeys(row[0] for row in shots.rows)) == TASKS
    kept = {
        (m["config"]["task"], m["config"]["shots"], m["inputs"]["checkpoint"]["digest"]): m["counts"]
        for m in (Store(store).manifest(artifact) for artifact in Store(store).list("prompted"))
    }
    assert len(kept) == len(TASKS) * 2 * 3
    models = shots.identity["models"]
    for task, score, k, *cells in shots.rows:
        for name, cell in zip(names, cells[:3], strict=True):
            counts = kept[task, int(k), models[name]]
            headline = {counts["metric"], f"{counts['metric']}, {PROMPT_TASKS[task].normalisation}"}
            key = "score" if score in headline else score.removeprefix(f"{counts['metric']}, ")
            key = key if key in counts["scores"] else score
            value = counts["scores"][key]
            assert cell == (f"{value:,.1f}" if score.startswith("perplexity") else f"{100 * value:.1f}")
    weights = [int(row[2].replace(",", "")) for row in size.rows if row[0] == "recall"]
    assert weights == sorted(weights)
    assert len(set(weights)) == 3
    headlines: dict[str, float] = {}
    for task, name, _, *cells in size.rows:
        if task in TASKS:
            scores = [kept[task, k, models[name]]["scores"]["score"] for k in (0, 2)]
            assert cells == [f"{100 * score:.1f}" for score in scores], "the headline is the task's own"
            headlines |= {f"{task}/{k} shots/{name}": 100 * score for k, score in zip((0, 2), scores, strict=True)}
    assert shots.metrics == headlines
    means = {row[1]: row[3:] for row in size.rows if row[0] == "mean of accuracies"}
    for name in names:
        of = [[headlines[f"{task}/{k} shots/{name}"] for task in TASKS if task != "squad"] for k in (0, 2)]
        assert means[name] == tuple(f"{sum(found) / len(found):.1f}" for found in of), "squad has no accuracy"
    assert any("Synthetic" in note for note in shots.notes)


def test_notes_tell_how_answers_compare_where_examples_are_from_and_what_is_published(found: list[Analysis]) -> None:
    notes = found[0].notes
    assert set(notes) >= set(expected(__file__, "notes"))
    assert any("GPT-2 1542M 63.24 (accuracy, no stop words)" in note for note in notes)
    called = [row[1] for row in found[0].rows if (row[0], row[2]) == ("sst2", "0")]
    others = ["accuracy, contextual calibration", "accuracy, total", "accuracy, unconditional"]
    assert called == ["accuracy, per token", *others]
    assert [row[1] for row in found[0].rows if (row[0], row[2]) == ("dprd", "0")] == ["accuracy"]


def test_examples_are_in_the_prompts_as_far_as_they_fit(found: list[Analysis]) -> None:
    room = {(row[0], row[2]): float(row[-2]) for row in found[0].rows}
    assert all(value == 0 for (_, k), value in room.items() if k == "0")
    assert room["recall", "2"] == 2
    assert 0 < room["sst2", "2"] <= 2


def test_what_was_answered_can_be_read(found: list[Analysis], shelf: Store) -> None:
    for artifact in shelf.list("prompted"):
        lines = [json.loads(line) for line in shelf.read(artifact, FILE).decode().splitlines()]
        assert len(lines) == shelf.manifest(artifact)["counts"]["rows"] == 6
        assert all(set(line) == {"prompt", "answer", "right"} for line in lines)


def test_tables_and_curves_are_on_a_run(found: list[Analysis]) -> None:
    for name in ("few-shot", "few-shot-size"):
        (tracked,) = Tracker().search("gptmill/analysis", {"analysis": name})
        files = {file.path for file in Tracker().client.list_artifacts(tracked.info.run_id)}
        assert {f"{name}.md", f"{name}.csv", f"{name}.png"} <= files


def test_again_nothing_is_computed_and_a_model_can_be_named(
    found: list[Analysis], store: str, world: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = {artifact.digest for artifact in Store(store).list("prompted")}
    assert [analysis.rows for analysis in run(store, world)] == [analysis.rows for analysis in found]
    largest = found[0].identity["models"][SIZES["demo"][-1].name]
    options = ["few-shot", "--store", store, "--datasets", world[1], "--checkpoint", largest[:12]]
    out = tmp_path / "out"
    assert main([*options, "--tasks", "recall", "--shots", "2", "--max-rows", "6", "--out", str(out)]) == 0
    assert {artifact.digest for artifact in Store(store).list("prompted")} == before
    row = next(row for row in found[0].rows if row[0] == "recall" and row[2] == "2")
    assert f" {row[5]} " in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {"few-shot.md", "few-shot.csv", "few-shot.png"}


@pytest.mark.parametrize(("options", "message"), expected(__file__, "test_bad_input_costs_no_work"))
def test_bad_input_costs_no_work(
    options: list[str],
    message: str,
    found: list[Analysis],
    store: str,
    world: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "size.toml").write_text("[model]\nn_embd = 64\n")
    (tmp_path / "short.toml").write_text("[model]\nn_ctx = 64\n")
    (tmp_path / "shape.toml").write_text('shape = "345M"\n')
    (tmp_path / "odd.toml").write_text("model = 3\n")
    options = [option.format(folder=tmp_path) for option in options]
    if "--datasets" not in options:
        options += ["--datasets", world[1]]
    before = {artifact.digest for artifact in Store(store).list("pretrain")}
    assert main(["few-shot", "--store", store, *options]) == 2
    assert {artifact.digest for artifact in Store(store).list("pretrain")} == before
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_tasks_without_room_are_told_of_and_refused_where_there_is_no_other(
    found: list[Analysis], store: str, world: tuple[str, str], tmp_path: Path
) -> None:
    largest = found[0].identity["models"][SIZES["demo"][-1].name]
    (tmp_path / "CNNDM").symlink_to(Path(world[1]) / "CNNDM")
    alone: dict[str, Any] = {"datasets": str(tmp_path), "tasks": [], "shots": [0], "max_rows": 2}
    for models in ({}, {"checkpoints": [largest]}):
        with pytest.raises(InputError, match="summaries: found a model with n_ctx = 64, expected 200 or more"):
            run(store, world, **alone, **models)
    (tmp_path / "DPRD").symlink_to(Path(world[1]) / "DPRD")
    (shots,) = run(store, world, **alone, checkpoints=[largest])
    assert {row[0] for row in shots.rows} == {"dprd"}
    assert "too few positions (n_ctx) for summaries, summaries-no-hint: not asked" in shots.notes


def test_an_own_task_that_no_prompt_can_ask_is_refused_before_a_world_is_made(tmp_path: Path) -> None:
    task = tmp_path / "kinds.toml"
    task.write_text(
        'name = "kinds"\nformat = "jsonl"\nform = "labels"\nfields = ["text"]\nlabel = "label"\n'
        'labels = ["a", "b"]\nmetrics = ["micro_f1"]\ntrain = "rows.jsonl"\ndev = "rows.jsonl"\n'
    )
    (tmp_path / "rows.jsonl").write_text('{"text": "x", "label": ["a"]}\n')
    with pytest.raises(InputError, match=r"kinds.toml: form = 'labels': a prompt has one answer"):
        few_shot(FewShotParameters(preset="demo", store=str(tmp_path / "store"), tasks=[str(task)]))
    assert not (tmp_path / "store").exists()


def test_sizes_differ_in_their_networks_alone() -> None:
    for name, sizes in SIZES.items():
        presets = [sized_preset(name, size, PROMPT_SETTINGS[name]) for size in sizes]
        assert len({(p.corpus, p.tokenizer, p.shards, p.pretrain, p.model.n_ctx) for p in presets}) == 1
        assert len({p.model for p in presets}) == 3
        assert all(p.model.norm_first for p in presets)
    settings = PROMPT_SETTINGS["demo"], {"model": {"n_ctx": 40}}
    assert sized_preset("demo", SIZES["demo"][0], *settings).model.n_ctx == 40


def test_a_tokenizer_that_is_given_is_learnt_by_no_size(
    found: list[Analysis], store: str, world: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizers = Store(store).list("tokenizer")
    monkeypatch.setattr("flows.papers.prompting.flow.SIZES", {"demo": SIZES["demo"][:1]})
    (shots,) = run(store, world, tokenizer="latest", tasks=["mrpc"], shots=[0])
    others = ["f1, contextual calibration", "f1, total", "f1, unconditional", "accuracy"]
    assert [row[1] for row in shots.rows] == ["f1, per token", *others], "another measure comes last"
    assert Store(store).list("tokenizer") == tokenizers
