"""Fine-tuning beside a teacher, or from a model of another task: losses against plain twins, exact resume, refusals."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import DistilConfig, FinetuneConfig, preset_named
from gptcore.data.masking import PieceTable
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.families import FAMILIES
from gptcore.machine import process
from gptcore.models.classifier import Classifier, EncoderClassificationModel, Head
from gptcore.models.encoder import Encoder, without_heads
from gptcore.models.network import load_model
from gptcore.nlu import REGISTRY
from gptcore.nlu.inputs import EncodedExample
from gptcore.objectives.losses import soft_class_loss, soft_tag_loss, task_loss
from gptcore.papers.students.augmentation import PROPOSALS, WordProposer, augmented
from gptcore.papers.students.task import TaughtClassifier, taught_classifier, taught_objective
from gptcore.training import finetune
from gptcore.training.optim import finetuning_schedule
from tests.gptcore.jobs import stopped_and_resumed
from tests.gptcore.test_encoder_head import QUICK
from tests.gptcore.test_encoder_head import QUICK as ENCODER
from tests.gptcore.test_finetune import QUICK as DECODER
from tests.gptcore.test_finetune import outcome
from tests.gptcore.tiny_tasks import (
    DIGEST,
    N_VOCAB,
    PIECES,
    PieceTokenizer,
    config,
    encoded,
    finetune_job,
    pretrained,
    pretrained_encoder,
)

TASKS = ("rte", "storycloze", "stsb")  # a class, choices, a graded label
LAYERS = {**FAMILIES["tinybert"].settings["distil"]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Rows, a BERT of two layers fine-tuned on each task, and a narrower student of one layer."""
    folder = tmp_path_factory.mktemp("world")
    torch.manual_seed(1)
    Encoder(dataclasses.replace(config("tinybert"), n_layer=1, n_embd=8, n_inner=16)).save(folder / "student")
    (folder / "student/meta.json").write_text(json.dumps({"tokenizer_digest": DIGEST}), encoding="utf-8")
    found = {"student": folder / "student", "teacher": pretrained_encoder(folder / "bert", "bert")}
    for task in TASKS:
        found[task] = encoded(folder, task, n_train=60, n_dev=20, words=PieceTokenizer())
        finetune.run(job(found, task, folder / f"{task}-tuned", None, model="teacher"), process.StopRequest())
        found[f"{task} teacher"] = folder / f"{task}-tuned/model"
    return found


def job(
    world: dict[str, Path], task: str, workspace: Path, teacher: Path | None, model: str = "student", **settings: Any
) -> dict[str, Any]:
    taught = {"taught": True, "layer_epochs": 2} if teacher else {}
    more = {"teacher": str(teacher), "distil": LAYERS} if teacher else {}
    chosen = {**QUICK, "epochs": 1, "clf_pdrop": 0.0, **taught, **settings}
    return finetune_job(task, world[model], world[task], workspace, chosen, **more)


@pytest.mark.parametrize("task", TASKS)
def test_layers_first_then_predictions(world: dict[str, Path], task: str, tmp_path: Path) -> None:
    finetune.run(job(world, task, tmp_path, world[f"{task} teacher"]), process.StopRequest())
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    dev = [record for record in records if "validation/score" in record["metrics"]]
    assert (len(dev), result["best_epoch"]) == (1, 1), "no dev row is scored before predictions are learnt"
    assert "train/attention_loss" in records[0]["metrics"]
    assert "train/task_loss" in records[-1]["metrics"] or "train/task_loss" in records[-2]["metrics"]
    model, _ = Classifier.load(tmp_path / "model")
    assert isinstance(model.network, Encoder)
    assert model.network.config.family == "tinybert"


def test_stopped_in_either_phase_it_ends_in_the_same_bits(world: dict[str, Path], tmp_path: Path) -> None:
    teacher = world["rte teacher"]
    finetune.run(job(world, "rte", tmp_path / "whole", teacher), process.StopRequest())
    given = job(world, "rte", tmp_path / "stopped", teacher)
    stopped_and_resumed(finetune.run, given, 3, 6)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")


def test_layers_that_are_learnt_are_nearer_to_the_teachers(world: dict[str, Path], tmp_path: Path) -> None:
    """More epochs of layers end at a lower loss of them, and the labels are read by nobody."""
    losses = []
    for epochs in (1, 12):
        folder = tmp_path / str(epochs)
        given = job(world, "rte", folder, world["rte teacher"], layer_epochs=epochs, lr=3e-3)
        finetune.run(given, process.StopRequest())
        records = [json.loads(line)["metrics"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        losses.append([found["train/hidden_loss"] for found in records if found.get("train/hidden_loss")][-1])
    assert losses[1] < 0.8 * losses[0]


def batch_of(form: str) -> dict[str, Tensor]:
    draws = torch.Generator().manual_seed(2)
    C = 2 if form == "choices" else 1
    mask = torch.ones(4, C, 9, dtype=torch.long)
    mask[1, :, 6:] = 0
    tokens = torch.randint(1, 30, (4, C, 9), generator=draws) * mask
    labels = torch.full((4, 9), IGNORE_INDEX)
    labels[:, 2:5] = 1
    return {
        "tokens": tokens,
        "segments": torch.zeros_like(tokens),
        "mask": mask.bool(),
        "clf_position": torch.zeros(4, C, dtype=torch.long),
        "labels": labels if form == "tags" else torch.zeros(4, dtype=torch.long),
        "share": torch.tensor(0.5),
        "layers": torch.tensor(False),
    }


@pytest.mark.parametrize("form", ["pair", "choices", "span", "tags"])
def test_predictions_are_told_as_the_teacher_gives_them(form: str) -> None:
    """Against sums over each answer's probabilities, row by row."""
    shape = dataclasses.replace(without_heads(config("bert")), init_std=0.5)
    head = Head(form, {"choices": 1, "span": 2}.get(form, 3), 0.0)
    student, teacher = (
        EncoderClassificationModel(Encoder(shape, torch.Generator().manual_seed(seed)), head).eval() for seed in (0, 1)
    )
    batch = batch_of(form)
    loss, _ = taught_objective(TaughtClassifier(student, None), teacher, DistilConfig(**LAYERS))(batch)
    marks = {"segments": batch["segments"], "mask": batch["mask"]}
    ours, its = (model(batch["tokens"], batch["clf_position"], **marks)[0] for model in (student, teacher))
    rows: list[tuple[Tensor, Tensor]] = []
    for row in range(4):
        length = int(batch["mask"][row, 0].sum())
        if form == "span":
            rows += [(ours[row, :length, end], its[row, :length, end]) for end in range(2)]
        elif form == "tags":
            rows += [(ours[row, at], its[row, at]) for at in range(2, 5)]
        else:
            rows.append((ours[row], its[row]))
    nats = [-(theirs.softmax(-1) * mine.log_softmax(-1)).sum() for mine, theirs in rows]
    torch.testing.assert_close(loss, 0.5 * torch.stack(nats).mean())


def test_both_phases_have_metrics_of_the_same_names(world: dict[str, Path]) -> None:
    """A line of the log may cover updates of both."""
    teacher, _ = Classifier.load(world["rte teacher"])
    student, _ = Classifier.load(world["rte teacher"])
    chosen = FinetuneConfig(taught=True, layer_epochs=1, lm_coef=0.0)
    for changes in ({}, {"hidden_weight": 0.0}):
        distil = DistilConfig(**{**LAYERS, **changes})
        trained = taught_classifier(student, teacher, distil, chosen, "there")
        objective, batch = taught_objective(trained, teacher, distil), batch_of("pair")
        names = [list(objective({**batch, "layers": torch.tensor(phase)})[1]) for phase in (True, False)]
        assert names[0] == names[1]
        assert ("hidden_loss" in names[0]) == (not changes)
        trained.eval()
        half, whole = (
            objective({**batch, "layers": torch.tensor(True), "share": share})[0] for share in torch.tensor([0.5, 1.0])
        )
        torch.testing.assert_close(2 * half, whole)


def test_soft_labels_of_one_class_are_hard_ones() -> None:
    scores = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 2, 1, 1, 0])
    sure = 1e4 * F.one_hot(labels, 3).float()
    torch.testing.assert_close(soft_class_loss(scores, sure, labels), task_loss(scores, labels))
    tags = torch.full((1, 5), IGNORE_INDEX)
    assert soft_tag_loss(scores[None], sure[None], tags) == 0, "a batch without a word to tag"


def test_the_rate_is_constant_while_layers_are_learnt() -> None:
    taught = FinetuneConfig(warmup=0.1, lr=3e-5, taught=True, layer_epochs=1, lm_coef=0.0)
    schedule = finetuning_schedule(taught, 100, 200)
    assert [schedule(step) for step in (0, 5, 10, 99)] == [0.0, 0.5, 1.0, 1.0]
    assert [schedule(step) for step in (100, 110, 199)] == pytest.approx([0.0, 0.9, 0.01])
    assert finetuning_schedule(taught, 0, 50)(5) == pytest.approx(0.9), "none: fine-tuning's own"
    printed = finetuning_schedule(dataclasses.replace(taught, layer_lr=5e-5), 100, 200)  # section 4.2
    assert [3e-5 * printed(step) for step in (0, 99, 100, 110)] == pytest.approx([5e-5, 5e-5, 0.0, 2.7e-5])
    ernie = [step / 50 / 0.1 if step / 50 < 0.1 else 1.0 for step in range(50)]  # warmup_linear of its run_fewrel.py
    for warmup, wanted in ((0.1, ernie), (0.0, [1.0] * 50)):
        constant = finetuning_schedule(FinetuneConfig(warmup=warmup, decay="constant"), 0, 50)
        assert [constant(step) for step in range(50)] == pytest.approx(wanted)


def test_what_does_not_go_together_is_refused(world: dict[str, Path], tmp_path: Path) -> None:
    assert not {"taught", "layer_epochs"} & set(recorded(FinetuneConfig()))
    quiet = {"lm_coef": 0.0}
    for name, value in (("pretrained", False), ("original", True), ("from_task", "mnli"), ("layer_decay", 0.8)):
        with pytest.raises(InputError, match=f"taught = True with {name} = {value}: expected"):
            FinetuneConfig(taught=True, **{**quiet, name: value})
    with pytest.raises(InputError, match=r"finetune.layer_epochs = 3 without finetune.taught"):
        FinetuneConfig(layer_epochs=3)
    with pytest.raises(InputError, match="taught = True, expected teacher and distil with it alone"):
        finetune.FinetuneJob.parse({**job(world, "rte", tmp_path, world["rte teacher"]), "teacher": None})
    with pytest.raises(InputError, match="taught = False, expected teacher and distil with it alone"):
        finetune.FinetuneJob.parse(
            {**job(world, "rte", tmp_path, None), "teacher": str(world["rte teacher"]), "distil": LAYERS}
        )
    with pytest.raises(InputError, match="answers choices of 1, expected pair of 2"):
        finetune.run(job(world, "rte", tmp_path, world["storycloze teacher"]), process.StopRequest())
    student, _ = Classifier.load(world["rte teacher"])
    shorter, longer = (
        EncoderClassificationModel(
            Encoder(dataclasses.replace(student.network.config, n_ctx=n_ctx)),  # type: ignore[arg-type]  # an encoder's
            Head("pair", 2, 0.1),
        )
        for n_ctx in (20, 30)
    )
    settings = DistilConfig(), FinetuneConfig(taught=True, lm_coef=0.0), "there"
    with pytest.raises(InputError, match="its n_ctx is 20, expected the student's 24 or more"):
        taught_classifier(student, shorter, *settings)
    assert taught_classifier(student, longer, *settings).classifier is student, (
        "rows are cut to the student's positions"
    )
    with pytest.raises(InputError, match=r"finetune.taught = True: GPT-1 has no teacher of tasks; expected False"):
        preset_named("demo", {"finetune": {"taught": True, "lm_coef": 0.0}})


# --- more rows ---


def pieces_of(folder: Path) -> PieceTable:
    """Two of the words go on others; the table is written where a job reads it."""
    special, tail = np.zeros(N_VOCAB, bool), np.zeros(N_VOCAB, bool)
    special[list(PIECES)], tail[[7, 8]] = True, True
    table = PieceTable(N_VOCAB, PIECES.pad, PIECES.cls, PIECES.sep, PIECES.mask, special=special, tail=tail)
    folder.mkdir(parents=True, exist_ok=True)
    table.save(folder)
    return table


def row_of(*fields: list[int]) -> EncodedExample:
    return EncodedExample(tuple(np.array(ids, np.uint16) for ids in fields), (), 1.0, "", "file:1")


def test_words_are_replaced_by_what_the_teacher_proposes(world: dict[str, Path], tmp_path: Path) -> None:
    """Against the likeliest words of a pass of its own for each place; pieces of longer words stay."""
    table = pieces_of(tmp_path)
    proposer = WordProposer.load(world["teacher"], PIECES, table.tail, table.special)
    model = load_model(str(world["teacher"]))
    text = np.array([4, 5, 7, 9, 11, 2], np.uint16)  # 5 and 7 are one word
    assert proposer.places(text).tolist() == [0, 3, 4, 5]
    (found,) = proposer.propose([text])
    for at, place in enumerate(proposer.places(text)):
        asked = torch.tensor([[PIECES.cls, *text.astype(int), PIECES.sep]])
        asked[0, place + 1] = PIECES.mask
        with torch.no_grad():
            scores = model(asked)[0, place + 1]
        scores[torch.from_numpy(table.special | table.tail)] = -torch.inf
        scores[int(text[place])] = -torch.inf
        assert found[at].tolist() == scores.topk(PROPOSALS).indices.tolist()
    rows = [row_of(text.tolist(), [3, 4]), row_of([7])]
    made = list(augmented(rows, proposer, 6, seed=1))
    again = list(augmented(rows, proposer, 6, seed=1))
    assert all(
        np.array_equal(a, b) for x, y in zip(made, again, strict=True) for a, b in zip(x.fields, y.fields, strict=True)
    )
    assert made[0] is rows[0]
    assert made[-1] is rows[1], "of which nothing can be replaced"
    copies = made[1:-1]
    assert 0 < len(copies) <= 6
    for copy in copies:
        assert (copy.label, copy.row) == (1.0, "file:1")
        assert copy.fields[0][1:3].tolist() == [5, 7]
        for at, place in enumerate(proposer.places(text)):
            assert copy.fields[0][place] in (text[place], *found[at])
    share = np.mean([copy.fields[0][0] != 4 for copy in augmented([rows[0]] * 60, proposer, 5, seed=2)][1:])
    assert 0.25 < share < 0.5, "two in five, and the rows themselves"


def test_a_student_learns_from_more_rows(world: dict[str, Path], tmp_path: Path) -> None:
    pieces_of(tmp_path / "pieces")
    more = {"proposer": str(world["teacher"]), "pieces": str(tmp_path / "pieces")}
    given = {**job(world, "rte", tmp_path / "w", world["rte teacher"], augmentation=2, max_train_rows=20), **more}
    stopped_and_resumed(finetune.run, given, 2)
    result = json.loads((tmp_path / "w/result.json").read_text(encoding="utf-8"))
    assert 40 < result["rows"]["train"] <= 60
    assert not (tmp_path / "w/augmented").exists()
    with pytest.raises(InputError, match="augmentation = 2, expected proposer and pieces with it alone"):
        finetune.FinetuneJob.parse(job(world, "rte", tmp_path, world["rte teacher"], augmentation=2))
    with pytest.raises(InputError, match=r"finetune.augmentation = 2 without finetune.taught"):
        FinetuneConfig(augmentation=2)
    with pytest.raises(InputError, match="has no head for masked words"):
        WordProposer.load(electra(tmp_path / "electra"), PIECES, np.zeros(1, bool), np.zeros(1, bool))


def electra(folder: Path) -> Path:
    return pretrained_encoder(folder, "electra")


FAMILIES = ("gpt", "bert", "albert", "electra")


@pytest.fixture(scope="module", params=FAMILIES)
def tuned_world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A pre-trained network of a family, two encoded tasks, and the settings of their fine-tuning; MNLI's is done."""
    family, folder = request.param, tmp_path_factory.mktemp(request.param)
    decodes = family == "gpt"
    if decodes:
        pretrained(folder / "model")
    else:
        pretrained_encoder(folder / "model", family)
    words = None if decodes else PieceTokenizer()
    found = {"model": folder / "model", "settings": {**(DECODER if decodes else ENCODER), "epochs": 1}}
    for task in ("mnli", "rte"):
        found[task] = encoded(folder, task, n_train=80, n_dev=20, words=words)
    finetune.run(moved_job(found, "mnli", folder / "tuned"), process.StopRequest())
    return {**found, "tuned": folder / "tuned/model"}


def moved_job(
    tuned_world: dict[str, Any], task: str, workspace: Path, start: Path | None = None, **settings: Any
) -> dict[str, Any]:
    chosen = {**tuned_world["settings"], **settings, **({"from_task": "mnli"} if start else {})}
    return finetune_job(
        task, tuned_world["model"], tuned_world[task], workspace, chosen, **({"start": str(start)} if start else {})
    )


def test_the_whole_network_is_taken_over_and_the_linear_layer_is_new(tuned_world: dict[str, Any]) -> None:
    """A decoder's special rows and an encoder's pooler are taken over, too; every seed draws its own linear layer."""
    tuned, _ = Classifier.load(tuned_world["tuned"])
    models = []
    for seed in (0, 1):
        parsed = finetune.FinetuneJob.parse(moved_job(tuned_world, "rte", Path(), tuned_world["tuned"], seed=seed))
        model, digest = finetune.task_model(parsed, REGISTRY["rte"])
        assert digest is not None
        models.append(model)
        theirs = tuned.network.state_dict()
        assert model.network.config == tuned.network.config
        assert all(torch.equal(value, theirs[name]) for name, value in model.network.state_dict().items())
    assert (tuned.n_outputs, models[0].n_outputs) == (3, 2)
    assert not torch.equal(models[0].head.weight, models[1].head.weight)
    plain = finetune.FinetuneJob.parse(moved_job(tuned_world, "rte", Path("unused")))
    before = finetune.task_model(plain, REGISTRY["rte"])[0].network.state_dict()
    assert any(not torch.equal(value, theirs[name]) for name, value in before.items()), "MNLI has changed it"


def test_stopped_and_resumed_it_ends_in_the_same_bits(tuned_world: dict[str, Any], tmp_path: Path) -> None:
    finetune.run(moved_job(tuned_world, "rte", tmp_path / "whole", tuned_world["tuned"]), process.StopRequest())
    given = moved_job(tuned_world, "rte", tmp_path / "stopped", tuned_world["tuned"])
    stopped_and_resumed(finetune.run, given, 3)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")
    about = json.loads((tmp_path / "whole/model/config.json").read_text(encoding="utf-8"))
    assert (about["task"], about["head"]["n_outputs"]) == ("rte", 2)


def test_settings_that_do_not_go_together_are_refused() -> None:
    assert "from_task" not in recorded(FinetuneConfig())
    start = FinetuneConfig(from_task="mnli")
    for name, value in (("pretrained", False), ("n_transfer", 1), ("original", True)):
        with pytest.raises(InputError, match=f"from_task = 'mnli' with {name} = {value}: expected"):
            dataclasses.replace(start, **{name: value})
    chosen = {"task": "rte", "finetune": {"from_task": "mnli"}, "model": "m", "dataset": "d", "workspace": "w"}
    with pytest.raises(InputError, match="finetune job: from_task = mnli, expected start with it alone"):
        finetune.FinetuneJob.parse({**chosen, "threads": None})
    with pytest.raises(InputError, match="finetune job: from_task = None, expected start with it alone"):
        finetune.FinetuneJob.parse({**chosen, "finetune": {}, "threads": None, "start": "s"})
