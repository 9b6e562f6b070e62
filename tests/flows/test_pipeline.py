"""The chain through Prefect's harness: end to end, nothing twice, and only what a change concerns again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter
from prefect.client.schemas.sorting import FlowRunSort
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from flows.cli.main import main
from flows.finetune import finetune
from flows.forms.checks import chosen_tasks
from flows.forms.choices import list_checkpoints
from flows.forms.parameters import FinetuneParameters, PretrainParameters
from flows.forms.references import pretrained_model
from flows.trainings.failures import SomeFailed, SomeInputsBad
from flows.trainings.grid import Grid, pretrained_arm, settings_of
from flows.trainings.leaderboard import score_tasks
from gptcore.base.errors import InputError
from gptcore.base.files import read_json
from gptcore.config import preset_named
from gptcore.evaluation.comparison import LEVEL
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_task import Task
from gptcore.nlu.registry import task_spec
from gptcore.text.sources import RawCorpus
from tasks.jobs.launch import JobDiverged
from tasks.report import paired
from tasks.report.card import shown
from tasks.report.leaderboard import Leaderboard
from tasks.report.paired import compare_rows
from tasks.report.suites import EXPERIMENT, read_leaderboard
from tasks.stages.partitions import clean_partitions
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.tokenizer import pin_tokenizer
from tasks.store.artifact import Artifact
from tasks.store.lineage import ancestor, tokenizer_of
from tasks.store.references import checkpoint_label
from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tests.flows.world import OVERRIDES, TASKS, changed, run_pipeline, with_blimp
from tests.tasks.stores import verify

pytestmark = pytest.mark.usefixtures("prefect_server")

PAIRS = (((True, True), (True, False)), ((False, True), (False, False)))


def run(
    world: tuple[str, str], store: str, tasks: Sequence[str] = TASKS, form: dict[str, Any] | None = None, **changes: Any
) -> Leaderboard:
    overrides: dict[str, Any] = {s: {**values, **changes.pop(s, {})} for s, values in OVERRIDES.items()}
    overrides |= changes
    fields = {"tasks": list(tasks), "jobs": 2, "seeds": 0, "overrides": overrides, **(form or {})}
    return run_pipeline(world, store, **fields)


def made(store: str) -> dict[str, set[str]]:
    """Stage -> digests of what the store holds."""
    stages = ("corpus", "tokenizer", "shards", "ngrams", "dataset", "baseline", "pretrain", "finetune")
    return {stage: {artifact.digest for artifact in Store(store).list(stage)} for stage in stages}


@pytest.fixture(scope="module")
def board(world: tuple[str, str], store: str, prefect_server: Path) -> Leaderboard:
    return run(world, store)


@pytest.fixture(scope="module")
def checkpoint(board: Leaderboard, shelf: Store) -> str:
    """The label of the pipeline's checkpoint."""
    return checkpoint_label(shelf, shelf.list("pretrain")[0])


def newest(flow: str, older: int = 0) -> tuple[str, list[dict[str, Any]]]:
    """Name and artifacts (Markdown and tables) of the newest run of a flow, or of one before it."""
    with get_client(sync_client=True) as client:
        where = FlowFilter.model_validate({"name": {"any_": [flow]}})
        run = client.read_flow_runs(flow_filter=where, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=9)[older]
        body = {"artifacts": {"flow_run_id": {"any_": [str(run.id)]}}}
        artifacts = client.request("POST", "/artifacts/filter", json=body).json()
    return run.name, [found for found in artifacts if found["type"] in ("markdown", "table")]


def test_a_first_run_fills_every_row(board: Leaderboard, store: str) -> None:
    ours = {row.name.rpartition(" ")[0]: row for row in board.rows if row.kind != "published"}
    assert set(ours) == {"pre-trained", "from scratch", "best constant", "bag of words", "overlap"}
    pairs = {task for task in TASKS if "overlap" in form_of(task_spec(task)).floors}
    assert all(set(row.per_task) == (pairs if name == "overlap" else set(TASKS)) for name, row in ours.items())
    assert len(made(store)["finetune"]) == 2 * len(TASKS)
    assert any("published" in row.name and row.split == "test" for row in board.rows)


def test_a_pipelines_page_has_the_average_then_the_stages(checkpoint: str) -> None:
    name, artifacts = newest("pipeline")
    assert name.startswith("pipeline demo → ")
    assert "best floor" in name
    (card,) = (found for found in artifacts if found["key"] is None)
    assert card["data"].startswith("# 3 tasks: ")
    assert card["data"].index("| rte") < card["data"].index("## Stages") < card["data"].index("tokenizer ")
    assert "| -" not in card["data"].replace("| ---", "")


def test_shards_of_another_store_bring_along_what_the_card_tells_of(
    checkpoint: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training of hours would else end without its card."""
    import flows.pretrain as module

    shards = ancestor(Store(store), pretrained_model(Store(store), checkpoint), "shards")
    there: dict[str, bool] = {}

    def trained(request: PretrainRequest) -> Artifact:
        own, given = request.store, request.shards
        there["corpus"] = ancestor(own, own.adopt(given), "corpus").url.startswith(own.url)
        return given

    monkeypatch.setattr(PretrainRequest, "task", property(lambda _: trained))
    monkeypatch.setattr(module, "list_checkpoints", lambda _: None)
    other = str(tmp_path / "other")
    module.pretrain(PretrainParameters(preset="demo", overrides=OVERRIDES, store=other, shards=shards.url))
    assert there == {"corpus": True}
    assert [each.digest for each in Store(other).list("corpus")] == [ancestor(Store(store), shards, "corpus").digest]


def test_a_fine_tunes_page_holds_its_result_alone(checkpoint: str, world: tuple[str, str], store: str) -> None:
    chosen = {"store": store, "datasets": world[1], "epochs": 1, "max_train_rows": 32, "seeds": 2}
    finetune(FinetuneParameters(task="rte", checkpoint=checkpoint, pretrained=False, **{**chosen, "seeds": 1}))
    finetune(FinetuneParameters(task="rte", checkpoint=checkpoint, **chosen))
    name, artifacts = newest("finetune")
    assert name.startswith("finetune rte → ")
    assert name.endswith(f"; checkpoint {checkpoint[:12]}, 2 seeds, epochs 1, max train rows 32")
    (card,) = artifacts
    assert card["key"] is None
    # two: the pipeline's rows were scored on a part of the dev rows
    for words in ("median of 2 seeds", "±", "bag of words", "best constant", "| 56.0", "Rank ", " of 2 on these rows"):
        assert words in card["data"]
    assert "epochs 3" not in card["data"]  # the pipeline's runs had one epoch too
    assert re.search(r"\| epochs +\| 1 \(paper: 3\) +\|", card["data"])
    assert "| seed " not in card["data"].partition("## Settings")[2]
    assert "random weights" in card["data"]
    assert card["data"].count("[run](http") == 2
    assert "bag of words" in card["description"]

    name, artifacts = newest("fine-tunes")
    assert name == "fine-tunes: rte x pre-trained"
    (table,) = (found for found in artifacts if found["type"] == "table")
    assert "rte" in table["data"]
    assert "cola" not in table["data"]
    assert '"-"' not in table["data"]


def test_rows_and_models_are_compared_on_what_both_have_answered(
    board: Leaderboard, shelf: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [next(row.name for row in board.rows if row.name.startswith(label)) for label in ("pre-", "from scratch")]
    assert main(["compare", *names, "--store", shelf.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines[1:-2]} == {*TASKS, "average"}
    assert lines[-1].startswith("told apart (p < 0.05, by Holm over tasks): ")
    model = next(each for each in shelf.list("finetune") if shelf.manifest(each)["config"]["task"] == TASKS[0])
    assert main(["compare", model.short, model.short, "--task", TASKS[0], "--store", shelf.url]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "1.0000"
    assert main(["compare", names[0], "nosuch", "--store", shelf.url]) == 2
    assert f"'nosuch': found no such artifact in {shelf.url}" in capsys.readouterr().err
    assert main(["compare", *names, "--task", "qqp", "--store", shelf.url]) == 2
    assert "expected models fine-tuned on qqp" in " ".join(capsys.readouterr().err.split())


def test_what_words_and_n_grams_tell_alone_stands_beside_what_they_add(
    checkpoint: str, world: tuple[str, str], store: str, shelf: Store
) -> None:
    more = {"epochs": 1, "max_train_rows": 200, "overrides": {"finetune": {"ngrams": 2}}}
    fill = FinetuneParameters(task="sst2", checkpoint=checkpoint, store=store, datasets=world[1], seeds=1, **more)
    rows = {row.name.rpartition(" ")[0]: row for row in finetune(fill).rows if row.kind != "published"}
    floor = shelf.list("ngram-floor")[0]
    scored = shelf.manifest(floor)["counts"]
    assert rows["words and n-grams alone"].percent == {"sst2": pytest.approx(100 * scored["dev/score"])}
    assert (shelf.local(floor) / "dev.jsonl").is_file()
    counts = shelf.manifest(shelf.list("finetune")[0])["counts"]
    assert rows["pre-trained"].cells["sst2"].network == pytest.approx(100 * counts["network/dev/score"])
    (card,) = newest("finetune")[1]
    for label in ("the network alone", "words and n-grams alone"):
        assert f"| {label}" in card["data"]
    again = finetune(fill)
    assert shelf.list("ngram-floor")[0].digest == floor.digest
    assert any("the network alone" in line and "both" in line for line in again.explained())


def test_forms_list_the_stores_checkpoints_and_take_any_text(checkpoint: str, store: str, tmp_path: Path) -> None:
    finetune.to_deployment(name="finetune", parameters={"parameters": {"store": store}}).apply()
    list_checkpoints(Store(tmp_path))  # another store's business
    with get_client(sync_client=True) as client:
        before = client.read_deployment_by_name("finetune/finetune").parameter_openapi_schema
        list_checkpoints(Store(store))
        schema = client.read_deployment_by_name("finetune/finetune").parameter_openapi_schema
    assert before
    assert "anyOf" not in before["definitions"]["FinetuneParameters"]["properties"]["checkpoint"]
    assert schema
    typed, listed = schema["definitions"]["FinetuneParameters"]["properties"]["checkpoint"]["anyOf"]
    assert typed["type"] == "string"
    assert listed["enum"] == ["latest", checkpoint]
    assert "type" not in listed


def test_a_label_means_its_digest(checkpoint: str, shelf: Store) -> None:
    assert pretrained_model(shelf, checkpoint) == shelf.list("pretrain")[0] == pretrained_model(shelf, "latest")
    assert "1 layers x 16, perplexity" in checkpoint


def test_a_second_run_makes_nothing_and_says_the_same(board: Leaderboard, world: tuple[str, str], store: str) -> None:
    before = made(store)
    assert run(world, store) == board
    assert made(store) == before


def test_another_fine_tuning_rate_only_fine_tunes_again(board: Leaderboard, world: tuple[str, str], store: str) -> None:
    before = made(store)
    run(world, store, ["rte"], finetune={"lr": 2e-3})
    after = made(store)
    assert len(after.pop("finetune") - before.pop("finetune")) == 2
    assert after == before


def test_another_book_starts_from_cleaning(board: Leaderboard, world: tuple[str, str], store: str) -> None:
    before = made(store)
    book = sorted(Path(world[0]).iterdir())[0]
    with changed(book, book.read_text(encoding="utf-8") + "\nAnd so they all went home.\n"):
        run(world, store, ["rte"])
    after = made(store)
    anew = {stage for stage in before if after[stage] != before[stage]}
    assert anew >= {"corpus", "shards", "pretrain", "finetune"}
    assert "baseline" not in anew  # the datasets are as they were


def test_a_new_book_with_a_pinned_tokenizer_goes_on_from_the_checkpoint(
    board: Leaderboard, checkpoint: str, world: tuple[str, str], store: str, tmp_path: Path
) -> None:
    there = Store(store)
    first = pretrained_model(there, checkpoint)
    books = shutil.copytree(world[0], tmp_path / "books")
    own, form = tokenizer_of(there, first), {"tokenizer": "latest", "start": checkpoint}
    folder = shutil.copytree(there.local(own), tmp_path / "of-another-run")
    assert pin_tokenizer.fn(there, str(folder), preset_named("demo", OVERRIDES).tokenizer) == there.resolve(
        "latest", "tokenizer"
    )
    clean_partitions.fn(Store(store), RawCorpus.at(str(books)), preset_named("demo", OVERRIDES).corpus)
    size = (books / "a-new-one.txt").write_text("The new one .\nIt is short , and nobody knew it .\n" * 9)
    rows = run((str(books), world[1]), store, ["rte"], form, scratch=False)

    counts = there.manifest(there.list("corpus")[0])["counts"]
    assert counts["partitions"] == {"all": 9, "read": 1, "bytes_read": size}
    model = there.list("pretrain")[0]
    assert tokenizer_of(there, model) == own
    manifest = there.manifest(model)
    assert manifest["inputs"]["start"] == {"stage": "pretrain", "digest": first.digest}
    seen = there.manifest(first)["counts"]["tokens_seen"]
    assert manifest["counts"]["tokens_seen_before"] == seen
    assert f"after {first.short}" in checkpoint_label(there, model)
    told = (there.local(model) / "model" / "README.md").read_text(encoding="utf-8")
    assert first.short in told
    perplexity = shown(manifest["counts"]["validation/perplexity"])
    assert f"| held-out perplexity, a token | {perplexity} |" in " ".join(told.split())
    said = f"went on from the weights of {first.short}"
    assert any(said in found["data"] for found in newest("pipeline")[1])
    suites = Tracker().search(EXPERIMENT, {"kind": "ours", "suite": rows.rows[0].suite})
    assert suites[0].data.tags["start_digest"] == first.digest

    before = made(store)
    assert run((str(books), world[1]), store, ["rte"], form, scratch=False) == rows
    assert made(store) == before


def test_the_end_of_one_book_is_held_out_with_a_pinned_tokenizer_too(
    board: Leaderboard, checkpoint: str, world: tuple[str, str], store: str, tmp_path: Path
) -> None:
    there = Store(store)
    form = {"tokenizer": tokenizer_of(there, pretrained_model(there, checkpoint)).short}
    book = tmp_path / "book.txt"
    book.write_text("\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(world[0]).glob("*.txt"))))
    run((str(book), world[1]), store, ["rte"], form, scratch=False)
    documents = there.manifest(ancestor(there, there.list("pretrain")[0], "corpus"))["counts"]["documents"]
    assert (documents["kept"], documents["train"], documents["validation"]) == (1, 1, 1)


def test_mlflow_holds_the_same_rows_with_their_fine_tunes_below(board: Leaderboard, store: str) -> None:
    tracker = Tracker()
    kept = {row.suite: row for row in read_leaderboard(tracker).rows if row.kind != "published"}
    for row in board.rows:
        if row.kind == "published":
            continue
        assert kept[row.suite].percent == pytest.approx(row.percent)
    suites = {run.info.run_id for run in tracker.search(EXPERIMENT, {"kind": "ours"})}
    children, there = tracker.search(EXPERIMENT, {"kind": "finetune"}), Store(store)
    counts = {model.url: there.manifest(model)["counts"] for model in there.list("finetune")}
    assert children
    for child in children:
        assert child.info.status == "FINISHED"
        assert child.data.tags["mlflow.parentRunId"] in suites
        assert {"task", "seed", "data_digest", "tokenizer_digest", "git_commit", "prefect_flow_run_id"} <= set(
            child.data.tags
        )
        for name in child.data.metrics:
            points = tracker.client.get_metric_history(child.info.run_id, name)
            assert len({point.step for point in points}) == len(points), f"{name}: one value a step"
            if name.endswith("/accuracy"):
                assert all(point.value == 0 or 1 < point.value <= 100 for point in points), name
        assert child.data.metrics["dev/score"] == pytest.approx(100 * counts[child.data.tags["model"]]["dev/score"])


def test_the_pretraining_card_holds_curve_lineage_and_ngrams(board: Leaderboard, tmp_path: Path) -> None:
    tracker = Tracker()
    run = tracker.search("gptmill/pretrain", {"kind": "pretrain"})[0]
    text = Path(tracker.client.download_artifacts(run.info.run_id, "card.md", str(tmp_path))).read_text(
        encoding="utf-8"
    )
    for words in ("bigram perplexity", "data:image/png;base64", "## Lineage", "shards", "core-hours", "MLflow run"):
        assert words in text
    assert run.data.metrics["validation/perplexity"] > 1


def test_a_broken_row_costs_its_own_task_alone(board: Leaderboard, world: tuple[str, str], store: str) -> None:
    """Named at the end, after the others' row and card; where nothing is left, before anything is computed."""
    path = Path(world[1]) / "RTE" / "train.tsv"
    before = made(store)
    with changed(path, path.read_text(encoding="utf-8") + "9999\tonly one column\n"):
        with pytest.raises(
            SomeInputsBad, match=r"1 of the tasks failed, .*: rte: .*RTE/train\.tsv, line \d+"
        ) as caught:
            run(world, store)
        with pytest.raises(InputError, match=r"RTE/train\.tsv, line \d+") as alone:
            run(world, store, tasks=["rte"])
    assert not isinstance(alone.value, SomeInputsBad)
    assert made(store) == before
    ours = caught.value.board.rows[0]
    assert set(ours.per_task) == {"sst2", "storycloze"}
    assert ours.percent == {name: board.rows[0].percent[name] for name in ours.percent}
    name, artifacts = newest("pipeline", 1)
    assert name.startswith("pipeline demo → ")
    assert any(found["key"] is None and "storycloze" in found["data"] for found in artifacts)


def test_blimp_belongs_to_the_checkpoint_and_to_each_row_that_starts_from_it(
    board: Leaderboard, world: tuple[str, str], store: str, tmp_path: Path
) -> None:
    assert not any(row.zero_shot for row in board.rows if row.kind != "published")
    world, before = with_blimp(world, tmp_path / "datasets"), made(store)
    with pytest.MonkeyPatch.context() as patch:
        broken = tmp_path / "datasets" / "BLiMP" / "wh_island.jsonl"
        sound = broken.read_bytes()
        patch.setattr("flows.pipeline.run_chain", lambda *_, **__: pytest.fail("something was computed"))
        broken.write_bytes(sound + b"7\n")
        with pytest.raises(InputError, match=r"BLiMP/wh_island.jsonl, line 3: found 7, expected a JSON object"):
            run(world, store)
        broken.write_bytes(sound)
    rows = {row.name.rpartition(" ")[0]: row for row in run(world, store).rows}
    assert made(store) == before
    (scored,) = Store(store).list("blimp")
    counts = Store(store).manifest(scored)["counts"]
    assert counts["pairs"] == 2 * 67
    assert rows["pre-trained"].zero_shot["blimp"] == round(100 * counts["score"], 1)
    assert rows["pre-trained"].zero_shot["blimp/binding"] == round(100 * counts["fields"]["binding"], 1)
    assert not any(rows[name].zero_shot for name in ("from scratch", "best constant", "bag of words"))
    assert rows["pre-trained"].average(TASKS) == pytest.approx(sum(rows["pre-trained"].per_task.values()) / len(TASKS))
    _, artifacts = newest("pipeline")
    (card,) = (found for found in artifacts if found["key"] is None)
    assert "## BLiMP, without fine-tuning" in card["data"]


def test_a_fine_tune_that_fails_leaves_the_others(
    board: Leaderboard, world: tuple[str, str], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.stages import training as stage

    train = stage.run_job

    def diverges(module: str, job: dict[str, Any], *rest: Any, **options: Any) -> dict[str, Any]:
        if job["task"] == "rte":
            raise JobDiverged("the loss is NaN\nthe end of its log")
        return train(module, job, *rest, **options)

    monkeypatch.setattr(stage, "run_job", diverges)
    with pytest.raises(SomeFailed, match=r"others stand: rte: JobDiverged: the loss is NaN$") as caught:
        run(world, store, finetune={"lr": 3e-3})
    assert set(caught.value.board.rows[0].per_task) == {"sst2", "storycloze"}
    monkeypatch.undo()
    before = made(store)
    run(world, store, finetune={"lr": 3e-3})
    assert len(made(store)["finetune"] - before["finetune"]) == 2, "rte, pre-trained and from scratch"


def test_every_manifest_leads_back_to_its_inputs(board: Leaderboard, store: str) -> None:
    for artifact in Store(store).list("finetune"):
        manifest = read_json(Store(store).local(artifact) / "manifest.json")
        stages = {item.get("stage") for item in manifest["inputs"].values()}
        assert stages in ({"dataset", "checkpoint"}, {"dataset", "pretrain"}, {"dataset"})
        verify(Store(store), artifact)


def test_one_task_alone_fills_the_row_of_its_suite(checkpoint: str, world: tuple[str, str], store: str) -> None:

    def one(task: str) -> Leaderboard:
        chosen = {"store": store, "datasets": world[1], "epochs": 1, "max_train_rows": 32, "seeds": 2}
        result = finetune(FinetuneParameters(task=task, checkpoint=checkpoint, **chosen))
        assert isinstance(result, Leaderboard)
        return result

    first, second = one("rte").rows[0], one("sst2").rows[0]
    assert first.suite == second.suite
    assert first.seeds == "2"
    assert set(first.percent) == {"rte"}
    assert set(second.percent) == {"rte", "sst2"}


def test_rows_that_changed_since_they_were_encoded_fill_no_row(
    board: Leaderboard, world: tuple[str, str], store: str
) -> None:
    """Refused before anything is trained: a row never mixes numbers of different data."""

    stages = Store(store)
    encoded = {stages.manifest(item)["config"]["task"]: item for item in stages.list("dataset")}
    arms, settings = [pretrained_arm(stages.list("pretrain")[0])], settings_of(preset_named("demo"), [])
    grid = Grid(stages, world[1], [Task(task_spec("rte"))], {"rte": encoded["rte"]}, arms, settings, seeds=1)
    before = made(store)
    path = Path(world[1]) / "RTE" / "train.tsv"
    more = "9999\tIt rained .\tIt was wet .\tentailment\n"
    words = r"leaderboard row pre-trained \w+: rte: made from the data \w+, expected"
    with changed(path, path.read_text(encoding="utf-8") + more), pytest.raises(InputError, match=words):
        score_tasks(grid, jobs=1)
    assert made(store) == before


def test_a_form_for_a_task_without_data_says_what_is_there(world: tuple[str, str], store: str, tmp_path: Path) -> None:
    (tmp_path / "SST-2").mkdir()
    with pytest.raises(InputError, match="no data for rte; found sst2"):
        chosen_tasks(["rte"], str(tmp_path))
    with pytest.raises(InputError, match="no dataset found"):
        chosen_tasks([], str(tmp_path / "SST-2"))


def right(address: str) -> dict[str, bool]:
    """Of each row of a file of answers, whether it is right."""
    lines = map(json.loads, Path(address).read_text(encoding="utf-8").splitlines())
    return {line["row"]: line["prediction"] == line["label"] for line in lines}


def test_a_row_keeps_what_differs_for_certain_from_the_best_floor_and_the_best_row(
    world: tuple[str, str], store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have answered the same rows, McNemar's test and Holm's correction are statsmodels'."""
    board = run(world, store, scratch=True, finetune={"max_eval_rows": None, "lr": 0.002})
    kept = [row for row in read_leaderboard().rows if row.kind == "ours"]
    ours = [row for row in kept if row.suite in {each.suite for each in board.rows if each.kind == "ours"}]
    assert len(ours) == 2
    for task in TASKS:
        rows = right(*ours[0].cells[task].answers).keys()
        peers = [row for row in kept if row.data[task] == ours[0].data[task] and task in row.cells]
        peers = [row for row in peers if right(row.cells[task].answers[0]).keys() == rows]
        (best,) = (row for row in peers if "best" not in row.certain[task])
        assert best.percent[task] == max(row.percent[task] for row in peers)
        others = [row for row in peers if row is not best]
        corrected = multipletests([row.certain[task]["best"] for row in others], method="holm")[1]
        floor = board.floor_of(ours[0], task)
        assert floor is not None
        for row in ours:
            found = row.certain[task]
            for name, other in {"floor": floor, "best": best}.items():
                if other is not row:
                    mine, theirs = (right(*each.cells[task].answers) for each in (row, other))
                    table = [[sum((mine[r], theirs[r]) == pair for r in rows) for pair in line] for line in PAIRS]
                    assert found[name] == pytest.approx(mcnemar(table, exact=True).pvalue)
            assert found["level"] == (row is best or corrected[others.index(row)] >= LEVEL)
            assert board.is_low(row, task) == (row.percent[task] <= floor.percent[task] or found["floor"] >= LEVEL)
    assert all("level" in row.certain["average"] for row in ours)
    assert main(["leaderboard", "--format", "markdown"]) == 0
    assert "not told apart from it on the same rows (p >= 0.05, by Holm's method)" in capsys.readouterr().out


def test_what_was_compared_is_compared_again_for_other_answers_alone(
    world: tuple[str, str], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: dict[str, Any] = {"max_eval_rows": None, "lr": 0.002}
    run(world, store, scratch=True, finetune=whole)
    found: list[str] = []
    real = paired._probability

    def noted(column: str, pairs: Any) -> float:
        p = real(column, pairs)
        found.append(column)
        return p

    monkeypatch.setattr(paired, "_probability", noted)
    compare_rows(Tracker())
    assert found == []
    seeds = run(world, store, ["sst2"], {"seeds": 2}, scratch=True, finetune=whole)
    assert set(found) == {"sst2", "average"}
    cell = next(row for row in seeds.rows if row.kind == "ours").cells["sst2"]
    assert (cell.seeds, len(cell.answers)) == (2, 2)
    assert cell.deviation == pytest.approx((cell.high - cell.low) / 2**0.5)
    sample = run(world, store, ["rte"], scratch=False)
    row = next(row for row in sample.rows if row.kind == "ours")
    assert "floor" not in row.certain["rte"]
    assert any(line.startswith("not compared in some columns") and row.name in line for line in sample.explained())
