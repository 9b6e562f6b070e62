"""Students through the same chain: from a teacher of the store, and from a folder of Hugging Face's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flows.finetune import finetune_all
from flows.forms.checks import check_taught, given_teacher
from flows.forms.parameters import FinetuneAllParameters, FinetuneParameters
from flows.inference import export
from flows.papers.students import analyses as analysis
from flows.papers.students.checks import ablations_of
from flows.papers.students.flow import distil
from flows.papers.students.forms import DistillationParameters, DistilParameters, StudentsParameters
from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig, network_config, preset_named
from gptcore.families import FAMILIES
from gptcore.machine.process import StopRequest
from gptcore.papers.students import speed
from gptcore.papers.students.speed import KINDS
from gptcore.training.pretrain import PretrainJob
from tasks.papers.students.stages import measure_speed
from tasks.report.leaderboard import Leaderboard
from tasks.store.artifact import Artifact
from tasks.store.lineage import ancestor, teacher_of
from tasks.store.references import checkpoint_label, pretrained_model, teacher_model
from tasks.store.store import Store
from tests.expected import expected
from tests.flows.every_form import FORMS
from tests.flows.world import OVERRIDES, run_pipeline

TASKS = ["rte", "storycloze"]
RATES = [1e-3, 4e-3]
SHORT = {"pretrain": OVERRIDES["pretrain"], "finetune": OVERRIDES["finetune"]}

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def taught(world: tuple[str, str], store: str, prefect_server: Path) -> Leaderboard:
    """A BERT of two layers, fine-tuned, and a student of one."""
    deeper = {**OVERRIDES, "model": {**OVERRIDES["model"], "n_layer": 2}, "scratch": False}
    run_pipeline(world, store, family="bert", tasks=TASKS, overrides=deeper)
    chosen = {"datasets": world[1], "store": store, "tasks": TASKS, "jobs": 1, "seeds": 1}
    found = distil(DistilParameters(preset="demo", overrides=SHORT, **chosen))
    assert isinstance(found, Leaderboard)
    return found


def test_a_student_has_a_row_beside_its_teachers(taught: Leaderboard, shelf: Store) -> None:
    student, teacher = pretrained_model(shelf, "latest"), teacher_model(shelf, "latest")
    manifest = shelf.manifest(student)
    assert manifest["inputs"]["teacher"]["digest"] == teacher.digest
    assert manifest["inputs"]["shards"] == shelf.manifest(teacher)["inputs"]["shards"]
    assert manifest["config"]["model"]["n_layer"] == 1
    assert manifest["config"]["distil"]["soft_weight"] == 5.0
    assert "DistilBERT 1 layers x 16, perplexity" in checkpoint_label(shelf, student)
    assert f"student of {teacher.short}" in checkpoint_label(shelf, student)
    rows = {row.name for row in taught.rows if set(row.percent) == set(TASKS)}
    assert any(name.startswith(f"DistilBERT student of {teacher.digest[:6]}") for name in rows)
    assert any(name.startswith("BERT pre-trained") for name in rows)
    card = (shelf.local(student) / "model/README.md").read_text(encoding="utf-8")
    assert re.search(rf"student of +\| +{teacher.short}", card)
    assert ancestor(shelf, student, "corpus") == ancestor(shelf, teacher, "corpus")


def test_the_same_again_finds_everything_in_the_store(taught: Leaderboard, world: tuple[str, str], store: str) -> None:
    found = Store(store)
    before = {stage: len(found.list(stage)) for stage in ("pretrain", "finetune")}
    teacher = teacher_model(found, "latest")
    chosen = {"datasets": world[1], "store": store, "tasks": TASKS, "jobs": 1, "seeds": 1}
    distil(DistilParameters(preset="demo", overrides=SHORT, teacher=teacher.short, layers=1, **chosen))
    assert {stage: len(found.list(stage)) for stage in before} == before


def test_a_folder_of_hugging_faces_is_a_teacher(
    taught: Leaderboard, world: tuple[str, str], store: str, tmp_path: Path
) -> None:
    found = Store(store)
    teacher = teacher_model(found, "latest")
    export(found, teacher.short, "hugging-face", str(tmp_path / "bert"))
    chosen = {"store": store, "datasets": world[1], "tasks": ["rte"], "jobs": 1, "seeds": 1, "preset": "demo"}
    wanted = {"teacher": str(tmp_path / "bert"), "corpus": world[0], "family": "tinybert"}
    taught = {**OVERRIDES["finetune"], "layer_epochs": 1}
    narrow = {**SHORT, "finetune": taught, "corpus": OVERRIDES["corpus"], "model": {"n_embd": 8}}
    distil(DistilParameters(**wanted, overrides=narrow, **chosen))
    student = pretrained_model(found, "latest")
    manifest = found.manifest(student)
    assert manifest["inputs"]["teacher"]["stage"] == "imported"
    assert (manifest["config"]["model"]["family"], manifest["config"]["model"]["n_embd"]) == ("tinybert", 8)
    (tuned,) = [
        made for made in map(found.manifest, found.list("finetune")) if made["config"]["finetune"].get("taught")
    ]
    assert tuned["inputs"]["checkpoint"]["digest"] == student.digest
    its = found.manifest(found.artifact("finetune", tuned["inputs"]["teacher"]["digest"]))
    assert its["inputs"]["checkpoint"]["digest"] == manifest["inputs"]["teacher"]["digest"]
    assert (tuned["counts"]["best_epoch"], tuned["counts"]["steps"]) == (1, 2 * its["counts"]["steps"])


def test_a_student_has_its_first_weights_from_one_place(taught: Leaderboard, store: str) -> None:
    shelf, preset = Store(store), preset_named("demo", {"family": "distilbert"})
    teacher = teacher_model(shelf, "latest")
    with pytest.raises(
        InputError, match=r"--from latest: --teacher gives the first weights, too; expected distil.start"
    ):
        given_teacher(shelf, teacher.short, preset, "latest")
    job = json.loads((shelf.local(teacher) / "JOB.json").read_text())
    job |= {"start": "a", "teacher": "b", "distil": {}}
    with pytest.raises(InputError, match=r"start and distil.start = 'teacher': expected distil.start = 'random'"):
        PretrainJob.parse(job)


def test_what_cannot_be_taught_is_refused_in_one_line(taught: Leaderboard, store: str, tmp_path: Path) -> None:
    short = teacher_model(Store(store), "latest").short
    for message, form, given in expected(__file__, "test_what_cannot_be_taught_is_refused_in_one_line"):
        with pytest.raises(InputError) as refused:
            FORMS[form](store=store, **given).check()
        assert message.format(short=short) in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_models_speed_is_measured_as_it_is_and_as_onnx(taught: Leaderboard, shelf: Store) -> None:
    tuned = next(made for made in shelf.list("finetune") if shelf.manifest(made)["config"]["task"] == "rte")
    cost = measure_speed(shelf, tuned, ancestor(shelf, tuned, "dataset"))
    assert cost["parameters"] > 0
    assert all(cost[kind]["milliseconds"] > 0 and cost[kind]["rows_per_second"] > 0 for kind in KINDS)
    assert cost["int8"]["bytes"] < cost["onnx"]["bytes"]
    assert [cost[kind]["score"] is None for kind in KINDS] == [True, False, False]
    assert not (shelf.local(tuned) / "exported").exists()


def test_students_are_compared_by_scores_and_costs(
    taught: Leaderboard, world: tuple[str, str], store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = {"milliseconds": 2.0, "rows_per_second": 900.0, "bytes": 10_000, "peak_memory_bytes": 0, "score": 0.5}
    monkeypatch.setattr(analysis, "measure_speed", lambda *_: {"parameters": 4000, **dict.fromkeys(KINDS, cost)})
    books, datasets = world
    overrides = {**OVERRIDES, "model": {**OVERRIDES["model"], "n_layer": 2}}
    overrides["finetune"] = {**OVERRIDES["finetune"], "max_train_rows": 16}
    chosen = {"corpus": books, "datasets": datasets, "store": store, "tasks": ["rte"], "jobs": 1, "seeds": 1}
    before = Store(store).list("pretrain")
    with pytest.raises(InputError, match="--tasks: found squad, conll2003, expected one with classes"):
        analysis.students(StudentsParameters(preset="demo", **{**chosen, "tasks": ["squad", "conll2003"]}))
    assert Store(store).list("pretrain") == before, "refused before anything is trained"
    with monkeypatch.context() as patch:
        patch.setattr(analysis.Chain, "pretrain", lambda *_, **__: pytest.fail("a student was trained"))
        decayed = {**overrides, "finetune": {**overrides["finetune"], "layer_decay": 0.9}}
        with pytest.raises(InputError, match=r"finetune.taught = True with layer_decay = 0.9"):
            analysis.students(StudentsParameters(preset="demo", overrides=decayed, **chosen))
    (found,) = analysis.students(StudentsParameters(preset="demo", overrides=overrides, out=str(tmp_path), **chosen))
    ours = [row for row in found.rows if row[1] in ("torch, float32", "ONNX", "ONNX, int8")]
    assert [row[0] for row in ours if row[0]] == [
        "BERT, 2 layers: the teacher",
        "DistilBERT, 1 of 2 layers",
        "TinyBERT, 1 of 2 layers",
        "BERT of 1 layer, no teacher",
    ]
    cells = [dict(zip(found.header, row, strict=True)) for row in ours]
    assert {(cell["ms a row"], cell["rows/s"], cell["MB"]) for cell in cells} == {("2.00", "900", "0.01")}
    assert cells[0]["of the teacher"] == "100.0 %"
    assert {"DistilBERT", "TinyBERT4"} <= {row[0] for row in found.rows}
    assert (tmp_path / "students.png").is_file()


@pytest.fixture(scope="module")
def bert(taught: Leaderboard, shelf: Store) -> Artifact:
    """The teacher of two layers."""
    shapes = {each: network_config(shelf.manifest(each)["config"]["model"]) for each in shelf.list("pretrain")}
    (found,) = [each for each, shape in shapes.items() if (shape.family, shape.layers) == ("bert", 2)]
    return found


def test_a_named_teacher_brings_its_family_and_shape(bert: Artifact, world: tuple[str, str], store: str) -> None:
    named = {"store": store, "datasets": world[1], "tasks": ["rte"], "teacher": bert.short}
    for preset in ("demo", "small"):
        StudentsParameters(preset=preset, **named).check()
        DistillationParameters(preset=preset, **named).check()
    with pytest.raises(InputError, match=r"^--family albert: found BERT as the teacher; expected no --family"):
        StudentsParameters(preset="demo", **named, family="albert").check()
    shared = {"preset": "demo", "store": store, "teacher": bert.short}
    with pytest.raises(InputError, match=r"^--graph /nowhere/x: BERT has no entities"):
        StudentsParameters(**shared, graph="/nowhere/x").check()
    with pytest.raises(InputError, match=r"^--datasets: none given, and \S+ holds no generated world"):
        StudentsParameters(**shared).check()
    with pytest.raises(InputError, match=f"^--corpus: the teacher {bert.short} was made from text of the store"):
        StudentsParameters(**shared, corpus="books").check()


def test_an_ablation_has_a_row_a_part(
    bert: Artifact, world: tuple[str, str], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = (
        "DistilBERT",
        "no cosine",
        "TinyBERT",
    )  # of nine, all of which test_students.py plans
    some = [student for student in ablations_of(EncoderConfig(n_layer=2)) if student.label in kept]
    monkeypatch.setattr(analysis, "ablations_of", lambda _: some)
    shelf = Store(store)
    chosen = {"datasets": world[1], "store": store, "tasks": ["rte"], "jobs": 1, "seeds": 1, "overrides": OVERRIDES}
    (found,) = analysis.distillation(DistillationParameters(preset="demo", teacher=bert.short, **chosen))
    assert found.header == ("what is learnt", "perplexity", "average", "difference", "published difference", "rte")
    whole, without, other = found.rows
    assert (whole[0], without[0], other[0]) == kept
    assert whole[3] == other[3] == ""
    assert float(without[3]) == pytest.approx(float(without[2]) - float(whole[2]), abs=0.11)
    assert without[4] == "-1.46", "DistilBERT, Table 4"
    assert all(float(row[1]) > 1 for row in found.rows)
    made = [each for each in shelf.list("pretrain") if teacher_of(shelf, each) == bert]
    assert {shelf.manifest(each)["config"]["distil"]["cosine_weight"] for each in made} == {0.0, 1.0}


def test_rates_of_who_is_taught_are_tried_with_the_teachers_own(
    bert: Artifact, world: tuple[str, str], store: str
) -> None:
    shelf = Store(store)
    chosen = {"datasets": world[1], "store": store, "tasks": ["mrpc"], "jobs": 1, "seeds": 1, "preset": "demo"}
    before = {each.digest for each in shelf.list("pretrain")}
    short = {
        "pretrain": {**OVERRIDES["pretrain"], "steps": 4},
        "finetune": {**OVERRIDES["finetune"], "layer_epochs": 1},
    }
    distil(DistilParameters(teacher=bert.short, family="tinybert", overrides=short, **{**chosen, "tasks": ["rte"]}))
    (student,) = [each for each in shelf.list("pretrain") if each.digest not in before]
    form = FinetuneAllParameters(
        checkpoint=student.short, rates=RATES, overrides={"finetune": short["finetune"], "scratch": False}, **chosen
    )
    form.check()
    finetune_all(form)
    tuned = [dict(shelf.manifest(each)) for each in shelf.list("finetune")]
    mrpc = [manifest for manifest in tuned if manifest["config"]["task"] == "mrpc"]
    taught = [manifest for manifest in mrpc if manifest["config"]["finetune"].get("taught")]
    assert sorted(manifest["config"]["finetune"]["lr"] for manifest in taught) == RATES, "the row's run is a trial"
    (its,) = {manifest["inputs"]["teacher"]["digest"] for manifest in taught}
    assert shelf.manifest(shelf.artifact("finetune", its))["config"]["finetune"]["lr"] == 1e-3
    assert len(mrpc) == 3

    with pytest.raises(
        InputError, match=r"^--layer-decay 0.8: TinyBERT learns its tasks from its teacher's models; expected"
    ):
        FinetuneParameters(
            task="rte", checkpoint=student.short, store=store, datasets=world[1], layer_decay=0.8
        ).check()
    with pytest.raises(InputError, match=r"^--from-task mnli: TinyBERT learns its tasks"):
        FinetuneAllParameters(checkpoint=student.short, from_task="mnli", **chosen).check()
    check_taught(FAMILIES["bert"], {"from-task": "mnli"})


def test_what_a_measurement_cannot_read_is_said_as_the_reader_says_it(
    bert: Artifact, shelf: Store, tmp_path: Path
) -> None:
    tuned = next(each for each in shelf.list("finetune") if shelf.manifest(each)["config"]["task"] == "rte")
    job = {
        "model": str(shelf.local(tuned) / "model"),
        "tokenizer": str(tmp_path / "nowhere"),
        "dataset": str(shelf.local(ancestor(shelf, tuned, "dataset"))),
        "workspace": str(tmp_path),
    }
    with pytest.raises(InputError, match="nowhere"):
        speed.run(job, StopRequest())
