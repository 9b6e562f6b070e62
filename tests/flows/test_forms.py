"""A form checks itself: what it names is looked up, and of several faults the first of a fixed order is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from flows.deployments.catalog import OFFERS
from flows.forms import choices
from flows.forms.parameters import PipelineParameters
from flows.forms.readers import as_typed, learning_rates
from flows.forms.run_names import run_name
from flows.papers.sweep.forms import SweepParameters
from flows.pipeline import pipeline
from flows.trainings import train as module
from flows.trainings.rates import _as_table, _best
from flows.trainings.train import show_progress
from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import FinetuneConfig, ModelConfig, preset_named
from gptcore.families import FAMILIES
from gptcore.nlu.registry import task_settings, task_spec
from gptcore.papers.abstracts.config import PRESETS, SWEEPS, AdaptConfig, SweepTable, at_size
from tasks.papers.abstracts.report import cells
from tasks.stages.finetune import FinetuneRequest
from tasks.store.artifact import Artifact, Recipe
from tasks.store.references import checkpoint_label
from tasks.store.store import Store
from tasks.tracking.logs import Underway
from tests.expected import expected
from tests.flows.every_form import FORMS

FAULTS = expected(__file__, "FAULTS")
"""Form -> field, value and message of its faults, in the order in which they are told."""
NEEDED = expected(__file__, "NEEDED")


@pytest.mark.parametrize("form", FAULTS)
def test_of_several_faults_the_first_is_told(form: str, tmp_path: Path) -> None:
    faults = FAULTS[form]
    for first, (_, _, message) in enumerate(faults):
        given = {"store": str(tmp_path / "store"), **NEEDED.get(form, {})}
        for name, value, _ in reversed(faults[first:]):  # the first of a field's two values last
            given[name] = value.format(tmp=tmp_path) if isinstance(value, str) else value
        with pytest.raises(InputError, match=message):
            FORMS[form].model_validate(given).check()
    assert not (tmp_path / "store").exists()


def test_a_form_that_is_refused_is_refused_again(tmp_path: Path) -> None:
    twice = PipelineParameters(store=str(tmp_path / "store"), rates=[1e-4, 1e-4])
    for _ in range(2):
        with pytest.raises(InputError, match=r"^--rates: found 0.0001 twice"):
            twice.check()
    with pytest.raises(ValidationError, match="frozen"):
        twice.rates = []  # type: ignore[misc]  # which is what is tried


def test_a_sweep_that_names_its_preset_is_read_before_its_checkpoint_is_looked_up(tmp_path: Path) -> None:
    form = SweepParameters(store=str(tmp_path / "store"), checkpoint="abc", sweep={"preset": "demo"})
    with pytest.raises(InputError, match=r"^sweep: found no objective"):
        form.check()
    with pytest.raises(InputError, match=r"^pretrain or imported 'abc'"):
        form.model_copy(update={"sweep": {}}).check()


def test_what_a_form_means_is_looked_up_once_and_for_a_copy_anew(tmp_path: Path) -> None:
    form = PipelineParameters(store=str(tmp_path / "store"))
    form.check()
    assert form.request is form.request
    handed_over = pipeline.validate_parameters({"parameters": form})["parameters"]
    assert handed_over.request is form.request, "the flow takes what the command line has looked up"
    copied = form.model_copy(update={"preset": "small"})
    assert (copied.request.preset.name, form.request.preset.name) == ("small", "demo")
    assert set(dict(form)) == set(form.model_dump()) == set(PipelineParameters.model_fields)


# --- tables 3 to 7 as settings: every cell of every preset, and Table 2's rates


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("table", SWEEPS, ids=lambda table: table.setting)
def test_every_presets_tables_have_cells_that_can_be_trained(preset: str, table: SweepTable) -> None:
    star = PRESETS[preset].star
    made = cells(table, star)
    assert [papers for papers, _, _ in made] == list(table.rows)
    assert len({ours for _, ours, _ in made}) == len(made)
    assert sum(config == star for _, _, config in made) == 1
    if preset == "paper":
        assert [ours for _, ours, _ in made] == list(table.rows)


@pytest.mark.parametrize("epochs", [0.11, 0.14, 3.0])
def test_the_settings_own_cell_is_exact(epochs: float) -> None:
    """0.11 * 5 / 5 is another number than 0.11, and would be another training."""
    star = dataclasses.replace(PRESETS["demo"].star, epochs=epochs)
    table = next(table for table in SWEEPS if table.setting == "epochs")
    assert sum(config == star for _, _, config in cells(table, star)) == 1


def test_a_table_that_cannot_be_scaled_names_the_setting() -> None:
    table = next(table for table in SWEEPS if table.setting == "block_size")
    star = dataclasses.replace(PRESETS["demo"].star, block_size=20)
    with pytest.raises(InputError, match=r"star.block_size = 20: Table 4 has the paper's multiples of it: .*"):
        cells(table, star)


@pytest.mark.parametrize(("size", "lr"), [("82M", 5e-5), ("345M", 2e-5), ("774M", 1e-5), ("1558M", 3e-4)])
def test_each_released_size_has_its_rate_of_table_2(size: str, lr: float) -> None:
    model = {**FAMILIES["gpt2"].shapes[size], "n_ctx": 8}
    assert at_size(AdaptConfig(lr=3e-4, epochs=2), model) == AdaptConfig(lr=lr, epochs=2)


# --- the lists that forms offer


def pretrained(store: Store, seed: int) -> Artifact:
    config = {"seed": seed, "model": recorded(ModelConfig(n_layer=1))}
    return store.build(
        Recipe("pretrain", 1, config), lambda _: {"validation/perplexity": 2.5, "tokens_seen": 1_000}
    ).artifact


def test_the_newest_checkpoints_are_listed_and_incomplete_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    models = [pretrained(store, seed) for seed in range(4)]
    monkeypatch.setattr(choices, "_LISTED", 2)
    (Path(models[3].url) / "manifest.json").write_bytes(b"{")
    assert choices.checkpoints_of(store) == ["latest", *(checkpoint_label(store, models[seed]) for seed in (2, 1))]


def test_a_stores_checkpoints_are_read_once_for_all_of_its_deployments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, updated, reads = Store(tmp_path / "store"), [], []
    schema = {"definitions": {"Form": {"properties": {"checkpoint": {"type": "string"}}}}}

    def deployment(number: int, url: str) -> Any:
        form = {"parameters": {"store": url}}
        return SimpleNamespace(id=number, parameters=form, parameter_openapi_schema=schema)

    there = [*(deployment(number, store.url) for number in range(15)), deployment(15, "/another")]
    client = SimpleNamespace(
        read_deployments=lambda **_: there, update_deployment=lambda number, _: updated.append(number)
    )

    @contextmanager
    def connected(sync_client: bool) -> Iterator[Any]:
        yield client

    def read(found: Store) -> list[str]:
        reads.append(found.url)
        return ["latest"]

    monkeypatch.setattr(choices, "get_client", connected)
    monkeypatch.setattr(choices, "checkpoints_of", read)
    choices.list_checkpoints(store)
    assert (updated, reads) == (list(range(15)), [store.url])
    reads.clear()
    choices.list_checkpoints(Store(tmp_path / "unknown"))
    assert reads == [], "no form asks for it"


def test_a_form_says_what_an_empty_field_means_for_the_newest_checkpoint(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert choices.settings_of_latest(store) == {}
    pretrained(store, 0)
    settings = choices.settings_of_latest(store)
    offer = next(offer for offer in OFFERS if offer.name == "finetune")
    fields = offer.schema["definitions"]["FinetuneParameters"]["properties"]
    assert [name for name in ("seeds", *settings, "layers") if "default" in fields[name]] == []
    told = choices.with_choices(offer.schema, ["latest"], settings)
    found = told["definitions"]["FinetuneParameters"]["properties"]["lr"]["description"]
    assert found.endswith(
        f"Empty: as the preset says. With latest: {as_typed(settings['lr'])}, unless the task has its own."
    )
    assert choices.without_choices(told) == offer.schema
    assert choices.with_choices(told, ["latest"], settings) == told


# --- runs are called by what they do


@pytest.mark.parametrize(("flow", "form", "given", "name"), expected(__file__, "test_a_run_is_called_by_what_it_does"))
def test_a_run_is_called_by_what_it_does(flow: str, form: str, given: dict[str, Any], name: str) -> None:
    assert run_name(flow, FORMS[form](**given)) == name


# --- which of several learning rates a task gets, and what is said of the others


def test_the_best_dev_score_wins_and_of_equal_ones_the_first() -> None:
    assert _best({5e-5: 0.7, 3e-5: 0.8, 2e-5: 0.8}) == 3e-5
    assert _best({5e-5: ArithmeticError("loss = nan"), 2e-5: 0.1}) == 2e-5
    assert _best({5e-5: ArithmeticError("loss = nan")}) is None


def test_the_card_shows_every_rate_its_dev_score_and_the_choice() -> None:
    tried = {
        "rte": {5e-5: 70.12, 3e-5: 80.0},
        "cola": {5e-5: ArithmeticError("loss = nan"), 3e-5: 25.0},
        "mrpc": {5e-5: InputError("no row"), 3e-5: InputError("no row")},
    }
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in _as_table([5e-5, 3e-5], tried).splitlines()
    ]
    assert rows[0] == ["score that chose the epoch, seed 0", "5e-5", "3e-5", "chosen"]
    assert rows[2:] == [
        ["rte", "70.1", "**80.0**", "3e-5"],
        ["cola", "ArithmeticError: loss = nan", "**25.0**", "3e-5"],
        ["mrpc", "no row", "no row", "-"],
    ]


def test_rates_are_read_as_numbers() -> None:
    assert learning_rates("2e-5, 3e-5,0.001") == [2e-5, 3e-5, 1e-3]
    with pytest.raises(InputError, match="--rates: found '2e-5;3e-5', expected numbers"):
        learning_rates("2e-5;3e-5")


# --- how far many trainings are: by what each has to do, not by how many there are


def told(monkeypatch: pytest.MonkeyPatch, ends: list[tuple[float, float]]) -> tuple[list[tuple[float, str]], float]:
    """What is said of trainings that end one after another, each with its work and the second at which it ends.

    And what Prefect's page shows in the end, in per cent.
    """
    news: list[Underway] = []
    percents: list[float] = []
    now = 100.0
    work = {f"training {place}": amount for place, (amount, _) in enumerate(ends)}

    def ending(trainings: list[str]) -> Iterator[str]:
        nonlocal now
        for training, (_, second) in zip(trainings, ends, strict=True):
            now = 100.0 + second
            yield training

    monkeypatch.setattr(module, "as_completed", ending)
    monkeypatch.setattr("flows.trainings.train.time.monotonic", lambda: now)
    monkeypatch.setattr(module, "create_progress_artifact", lambda percent, key, description: uuid4())
    monkeypatch.setattr(module, "update_progress_artifact", lambda _, percent, description: percents.append(percent))
    monkeypatch.setattr(module, "progress", lambda item, line=False: news.append(item))
    show_progress(work, "fine-tunes")  # type: ignore[arg-type]  # names in the place of Prefect's futures
    return [(item.share, item.words) for item in news], percents[-1]


def test_the_eta_is_for_the_work_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, percent = told(monkeypatch, [(6.0, 60.0), (3.0, 90.0), (1.0, 100.0)])
    assert lines == [
        (0.0, "0 of 3"),
        (0.6, "0:40 left, 1 of 3"),
        (0.9, "0:10 left, 2 of 3"),
        (1.0, "0:00 left, 3 of 3"),
    ]
    assert percent == 100.0


def test_those_in_the_store_say_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, _ = told(monkeypatch, [(0.0, 0.1), (0.0, 0.2), (2.0, 10.0), (0.0, 10.0), (2.0, 20.0)])
    assert lines[:4] == [(0.0, "0 of 5"), (0.0, "1 of 5"), (0.0, "2 of 5"), (0.5, "0:10 left, 3 of 5")]
    assert lines[-1] == (1.0, "0:00 left, 5 of 5")


def test_one_tells_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, [(1.0, 60.0)]) == ([], 100.0)


def test_where_all_are_in_the_store_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, percent = told(monkeypatch, [(0.0, 0.1), (0.0, 0.2)])
    assert lines == [(0.0, "0 of 2"), (0.5, "1 of 2"), (1.0, "2 of 2")]
    assert percent == 100.0


def test_work_is_of_rows_and_epochs_and_none_once_it_is_done(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))

    def made(stage: str, counts: dict[str, Any], **config: Any) -> Artifact:
        return store.build(Recipe(stage, 1, config), lambda _: counts).artifact

    def training(rows: int, epochs: int) -> FinetuneRequest:
        counts = {"splits": {"train": {"rows": rows, "tokens": 50 * rows}}}
        dataset = made("dataset", counts, **task_settings(task_spec("rte")), rows=rows)
        return FinetuneRequest(store, "rte", dataset, checkpoint, FinetuneConfig(epochs=epochs), "pre-trained")

    checkpoint = made("pretrain", {}, model=recorded(preset_named("demo").model))
    small, large = training(100, 3), training(1_000, 6)
    assert small.work_left > 0
    assert large.work_left == pytest.approx(20 * small.work_left)
    store.build(large.recipe, lambda _: {})
    assert large.work_left == 0
