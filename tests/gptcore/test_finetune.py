"""The fine-tuning job: right losses, every input form learned, the same bits after any interruption."""

from __future__ import annotations

import dataclasses
import itertools
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gptcore.base.errors import InputError
from gptcore.config import FinetuneConfig
from gptcore.evaluation.predict import EVAL_ROW_SEED, evaluate, logits_of, mean_loss
from gptcore.evaluation.predictions import Predictions
from gptcore.machine import process
from gptcore.models.classifier import ClassificationModel
from gptcore.models.transformer import GPT
from gptcore.nlu import REGISTRY
from gptcore.nlu.encoded import read_encoded
from gptcore.objectives import task as task_objective
from gptcore.objectives.task import FinetuneData
from gptcore.training import best_epoch, finetune
from tests.expected import expected
from tests.gptcore.jobs import StopAfter
from tests.gptcore.tiny_tasks import DIGEST, MODEL, TASKS, encoded, finetune_job, pretrained, task_rows
from tests.gptcore.tiny_tasks import finetuned as run

TIMINGS = {"tokens_per_second", "wall_seconds", "peak_memory_bytes"}
QUICK = {"lr": 1e-2, "batch_size": 16, "epochs": 3, "precision": "float32"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A pre-trained model and an encoded dataset of every form."""
    folder = tmp_path_factory.mktemp("world")
    pretrained(folder / "model")
    return {"model": folder / "model", **{task: encoded(folder, task, n_train=160, n_dev=40) for task in TASKS}}


def job(world, task, workspace, **settings):
    scratch = settings.get("pretrained") is False
    shape = {"model_config": dataclasses.asdict(MODEL)} if scratch else {}
    model = None if scratch else world["model"]
    return finetune_job(task, model, world[task], workspace, {**QUICK, **settings}, **shape)


def outcome(workspace):
    """All that must not depend on interruptions: the result without its timings, weights, predictions, metrics."""
    result = json.loads((workspace / "result.json").read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (workspace / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    timed = {"tokens_per_second", "eta_seconds"}
    return {
        "result": {name: value for name, value in result.items() if name not in TIMINGS},
        "weights": {k: v.numpy().tobytes() for k, v in load_file(workspace / "model/model.safetensors").items()},
        "predictions": [path.read_bytes() for path in sorted((workspace / "predictions").iterdir())],
        "metrics": [(x["step"], {k: v for k, v in x["metrics"].items() if k not in timed}) for x in lines],
    }


def rows_of(world, task, split="train", **changes):
    options = {"n_ctx": MODEL.n_ctx, "n_vocab": MODEL.n_vocab, "max_rows": None, "seed": 0} | changes
    return task_rows(REGISTRY[task], world[task], split, **options)


def too_long(dataset, split):
    """Rows that do not fit n_ctx with their special tokens, counted from the texts' lengths."""
    lengths = [
        sum(map(len, row.fields)) + max(map(len, row.choices), default=0) for row in read_encoded(dataset, split)
    ]
    n_special = 2 if dataset.name == "sst2" else 3
    return sum(length + n_special > MODEL.n_ctx for length in lengths)


def network(world, task, **settings):
    parsed = finetune.FinetuneJob.parse(job(world, task, "unused", **settings))
    return finetune.task_model(parsed, REGISTRY[task])[0]


# Losses ---------------------------------------------------------------------------------------------------------------


def plain_l3(model, batch, lm_coef, counts=None):
    """Equation 5, one example, one sequence and one token at a time.

    :param counts: label -> all training rows that have it, where each label's count the same together.
    """
    form, tasks, lms = model.form, [], []
    for tokens, targets, ends, label in zip(
        batch.tokens, batch.lm_targets, batch.clf_position, batch.labels, strict=True
    ):
        states = []
        for ids, wanted, end in zip(tokens, targets, ends, strict=True):
            hidden = model.gpt.hidden(ids[None, : end + 1])[0]
            states.append(hidden[-1])
            log_probs = torch.log_softmax(hidden @ model.gpt.tokens.weight.T, -1)
            real = [at for at in range(len(hidden)) if wanted[at] != -100]
            lms.append(-sum(log_probs[at, wanted[at]] for at in real) / len(real))
        logits = torch.cat([model.head(s) for s in states]) if form == "choices" else model.head(sum(states))
        log_probs = torch.log_softmax(logits, -1)
        share = sum(counts.values()) / len(counts) / counts[int(label)] if counts else 1
        tasks.append(share * (-log_probs[label] if label.ndim == 0 else -(label * log_probs).sum()))
    return sum(tasks) / len(tasks) + lm_coef * sum(lms) / len(lms)


@pytest.mark.parametrize("micro_tokens", [10_000, 28])
@pytest.mark.parametrize(
    ("task", "weights"),
    [("sst2", None), ("sst2", "balanced"), ("rte", None), ("stsb", None), ("storycloze", None)],
)
def test_loss_and_gradients_equal_the_plain_twin_however_the_batch_is_cut(
    world, task, weights, micro_tokens, monkeypatch
):
    monkeypatch.setattr(task_objective, "_MICRO_TOKENS", micro_tokens)
    rows, config = rows_of(world, task), FinetuneConfig(batch_size=6, lm_coef=0.5, class_weights=weights)
    counts = Counter(map(int, rows.labels)) if weights else None
    model = network(world, task).eval()
    data = task_objective.FinetuneData(rows, config)
    update = data.update(3)
    assert (len(update.micro_batches) > 1) == (micro_tokens == 28)
    objective = task_objective.finetune_objective(model, config.lm_coef)
    total, parts = 0.0, 0.0
    for micro_batch in update.micro_batches:
        loss, metrics = objective(micro_batch)
        loss.backward()
        total += loss.item()
        parts += metrics["task_loss"].item() + 0.5 * metrics["lm_loss"].item()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()

    chosen = [rows.names.index(name) for name in data.documents(3)]
    whole = rows.batch(chosen)
    expected = plain_l3(model, whole, 0.5, counts)
    expected.backward()
    assert total == pytest.approx(expected.item(), rel=1e-5)
    assert parts == pytest.approx(total, rel=1e-6)
    assert update.n_tokens == int((whole.clf_position + 1).sum())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-6, msg=name)


@pytest.mark.parametrize("task", ["stsb", "storycloze"])
def test_rows_without_one_of_several_labels_have_no_weights(world, task, tmp_path):
    with pytest.raises(InputError, match=f"found the task {task}, expected a task each of whose rows has one"):
        run(job(world, task, tmp_path, class_weights="balanced"))


def test_without_the_auxiliary_objective_the_vocabulary_is_never_multiplied(world, tmp_path, monkeypatch):
    def forbidden(*_):
        raise AssertionError("the language model's head was used")

    monkeypatch.setattr(task_objective, "fused_language_model_loss", forbidden)
    monkeypatch.setattr(GPT, "logits", forbidden)
    run(job(world, "rte", tmp_path, lm_coef=0.0, epochs=1))
    names = {name for _, metrics in outcome(tmp_path)["metrics"] for name in metrics}
    assert "train/task_loss" in names
    assert "train/lm_loss" not in names


# Starting weights -----------------------------------------------------------------------------------------------------


def test_transfer_takes_embeddings_and_as_many_blocks_as_asked(world):
    source = GPT.load(world["model"])
    for n_transfer in (0, 1, 2, None):
        model = network(world, "rte", n_transfer=n_transfer)
        assert torch.equal(model.gpt.tokens.weight[: MODEL.n_vocab], source.tokens.weight)
        assert torch.equal(model.gpt.positions.weight, source.positions.weight)
        assert model.gpt.tokens.num_embeddings == MODEL.n_vocab + 3
        same = [
            all(torch.equal(a, b) for a, b in zip(mine.parameters(), its.parameters(), strict=True))
            for mine, its in zip(model.gpt.blocks, source.blocks, strict=True)
        ]
        kept = 2 if n_transfer is None else n_transfer
        assert same == [True] * kept + [False] * (2 - kept)


def test_from_scratch_only_the_pretrained_weights_differ(world):
    ours, scratch = network(world, "rte", seed=4), network(world, "rte", seed=4, pretrained=False)
    assert ours.gpt.config == scratch.gpt.config
    assert torch.equal(ours.head.weight, scratch.head.weight)
    assert torch.equal(ours.gpt.tokens.weight[-3:], scratch.gpt.tokens.weight[-3:])
    assert not torch.equal(ours.gpt.tokens.weight[:-3], scratch.gpt.tokens.weight[:-3])
    other = network(world, "rte", seed=5, pretrained=False)
    assert not torch.equal(other.head.weight, scratch.head.weight)
    assert scratch.gpt.tokens.weight.std().item() == pytest.approx(MODEL.init_std, rel=0.2)


# The whole job --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_every_form_is_learned_reported_and_scored_again_the_same(world, tmp_path, task):
    result = run(job(world, task, tmp_path, epochs=10, batch_size=8, lm_coef=0.1))
    spec = REGISTRY[task]
    assert result["dev/score"] == result[f"dev/{spec.headline}"] > 0.75
    assert {f"dev/{metric}" for metric in (*spec.metrics, *spec.subsets)} <= set(result)
    assert 0 < result["dev/score_stderr"] < 0.1 or result["dev/score"] == 1.0
    assert {name.partition("/")[0] for name in result if name.endswith("/score_stderr")} == set(result["rows"]) - {
        "train"
    }
    assert not result["majority_collapse"]
    assert 1 <= result["best_epoch"] <= 10
    assert ("test/score" in result) == (task == "storycloze")
    assert result["truncated"] == sum(too_long(world[task], split) for split in result["rows"])
    assert task != "storycloze" or result["truncated"] > 100  # its stories are longer than n_ctx
    assert result["rows"] == {split: len(rows_of(world, task, split)) for split in result["rows"]}

    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == [
        "metrics.jsonl",
        "model",
        "predictions",
        "result.json",
    ]
    config = json.loads((tmp_path / "model/config.json").read_text(encoding="utf-8"))
    assert (config["task"], config["labels"], config["tokenizer_digest"]) == (task, list(spec.labels), DIGEST)
    lines = [json.loads(line) for line in (tmp_path / "predictions/dev.jsonl").read_text("utf-8").splitlines()]
    assert [line["row"] for line in lines] == rows_of(world, task, "dev").names
    if spec.labels:
        assert np.mean([line["label"] == line["prediction"] for line in lines]) == result["dev/accuracy"]

    again = evaluate(tmp_path / "model", world[task], "dev", precision="float32", predictions=tmp_path / "p.jsonl")
    assert {f"dev/{name}": again[name] for name in ("score", *spec.metrics, *spec.subsets)}.items() <= result.items()
    assert (tmp_path / "p.jsonl").read_bytes() == (tmp_path / "predictions/dev.jsonl").read_bytes()
    assert (again["rows"], again["task"], again["split"]) == (result["rows"]["dev"], task, "dev")


def test_rows_are_limited_by_a_seeded_choice_and_all_seeds_are_scored_on_the_same_rows(world, tmp_path):
    seen = {}
    for seed in (1, 2):
        result = run(job(world, "rte", tmp_path / str(seed), epochs=1, seed=seed, max_train_rows=40, max_eval_rows=7))
        assert result["rows"] == {"train": 40, "dev": 7}
        assert result["steps"] == 2
        lines = (tmp_path / str(seed) / "predictions/dev.jsonl").read_text("utf-8").splitlines()
        seen[seed] = [json.loads(line)["row"] for line in lines]
    assert seen[1] == seen[2] == rows_of(world, "rte", "dev", max_rows=7, seed=EVAL_ROW_SEED).names
    trained = [rows_of(world, "rte", max_rows=40, seed=seed).names for seed in (1, 2)]
    assert trained[0] != trained[1]


def test_the_best_epoch_is_the_one_that_is_kept(world, tmp_path, monkeypatch):
    scripted = iter([0.4, 0.9, 0.9, 0.5])
    weights = []

    def scores(self, spec):
        return {"score": next(scripted), "accuracy": 0.0}

    original = best_epoch.BestEpoch.evaluate

    def spy(self, step, interrupted):
        weights.append({k: v.clone() for k, v in self.model.state_dict().items()})
        return original(self, step, interrupted)

    monkeypatch.setattr(Predictions, "scores", scores)
    monkeypatch.setattr(best_epoch.BestEpoch, "evaluate", spy)
    result = run(job(world, "rte", tmp_path, epochs=4))
    assert (result["best_epoch"], result["dev/score"]) == (2, 0.9)
    kept = load_file(tmp_path / "model/model.safetensors")
    assert all(torch.equal(kept[name], weights[1][name]) for name in kept)
    assert not all(torch.equal(kept[name], weights[3][name]) for name in kept)


@pytest.mark.parametrize("select", ["held-out", "refit"])
def test_the_epoch_is_chosen_on_held_out_rows_of_equal_scores_by_the_loss(world, tmp_path, monkeypatch, select):
    """The second of two epochs with 0.9 has the lower loss; dev rows are scored once, by the chosen epoch."""
    scripted, losses, seen, trained = iter([0.4, 0.9, 0.9, 0.5, 0.25]), iter([0.1, 0.3, 0.2, 0.1]), [], []
    monkeypatch.setattr(
        Predictions, "scores", lambda self, _: seen.append(self.rows.names) or {"score": next(scripted)}
    )
    monkeypatch.setattr(best_epoch, "mean_loss", lambda *_: next(losses))
    monkeypatch.setattr(
        finetune, "FinetuneData", lambda rows, *a, **k: trained.append(rows) or FinetuneData(rows, *a, **k)
    )
    result = run(job(world, "rte", tmp_path, epochs=4, select=select))
    assert (result["best_epoch"], result["validation/score"], result["dev/score"]) == (3, 0.9, 0.25)
    whole, held_out, dev = rows_of(world, "rte").names, seen[0], rows_of(world, "rte", "dev").names
    assert seen == [held_out] * 4 + [dev]
    assert (len(held_out), set(held_out) & set(trained[0].names)) == (20, set())
    assert sorted([*held_out, *trained[0].names]) == sorted(whole)
    again = {"held-out": 0, "refit": 160 // 16 * 3}[select]
    assert (result["steps"], result["rows"]["train"]) == (140 // 16 * 4 + again, 160 if again else 140)
    assert not again or trained[1].names == whole
    curve = [x["metrics"] for x in map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())]
    assert [each["validation/score"] for each in curve if "epoch" in each] == [40.0, 90.0, 90.0, 50.0]
    assert [each["progress"] for each in curve if "progress" in each][-1] == 1.0


def test_the_loss_of_held_out_rows_is_the_twins(world, tmp_path):
    run(job(world, "storycloze", tmp_path, epochs=1))
    model, _ = ClassificationModel.load(tmp_path / "model")
    rows, spec = rows_of(world, "storycloze", "dev"), REGISTRY["storycloze"]
    logits = logits_of(model, rows, torch.device("cpu"))
    logs = [np.log(np.exp(row.astype(float)) / np.exp(row.astype(float)).sum()) for row in logits]
    twin = -np.mean([log[int(label)] for log, label in zip(logs, rows.labels, strict=True)])
    assert mean_loss(spec, rows, logits, torch.device("cpu")) == pytest.approx(twin, rel=1e-5)


def test_a_model_that_its_last_update_broke_ends_the_run(world, tmp_path, monkeypatch):
    """The argmax of no numbers is the first class, which is right on half of the rows."""
    plain = best_epoch.logits_of
    monkeypatch.setattr(best_epoch, "logits_of", lambda *given: [np.full_like(row, np.nan) for row in plain(*given)])
    with pytest.raises(process.NonFiniteLoss, match="validation/score = nan"):
        run(job(world, "rte", tmp_path, epochs=1))
    assert not (tmp_path / "best").exists()


def test_a_model_that_answers_always_the_same_is_flagged(world, tmp_path, monkeypatch):
    build = finetune.task_model

    def biased(*arguments):
        model, digest = build(*arguments)
        torch.nn.init.constant_(model.head.bias[1:], 99.0)
        return model, digest

    monkeypatch.setattr(finetune, "task_model", biased)
    result = run(job(world, "mrpc", tmp_path, epochs=1, lr=1e-9))
    assert result["majority_collapse"]
    assert result["dev/accuracy"] == 0.5


def test_a_job_imports_nothing_heavy_beside_torch(world, tmp_path):
    """A second or more each, in jobs of which there are dozens in a pipeline."""
    (tmp_path / "JOB.json").write_text(json.dumps(job(world, "stsb", tmp_path / "work", epochs=1)))
    program = (
        "import sys; from gptcore.machine import process; from gptcore.training import finetune;"
        "code = process.main(finetune.run, sys.argv[1:]);"
        "print(code, sorted({'torch._dynamo', 'pandas', 'scipy', 'sklearn', 'spacy', 'mlflow'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "JOB.json")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1] == "0 []"


def test_a_finished_job_is_left_as_it_is(world, tmp_path):
    given = job(world, "rte", tmp_path, epochs=1)
    run(given)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    run(given)
    assert {path: path.stat().st_mtime_ns for path in before} == before


# Interruptions --------------------------------------------------------------------------------------------------------


def stops_that_change_nothing(job_at):
    """At how many questions, from the first to the last, a job may be stopped and resumed: its outcome is the same.

    :param job_at: the job in a workspace of some name.
    """
    whole = job_at("whole")
    run(whole)
    for asked in itertools.count():
        given = job_at(f"stopped-{asked}")
        try:
            run(given, StopAfter(asked))
        except process.Interrupted:
            run(given)
            assert outcome(Path(given["workspace"])) == outcome(Path(whole["workspace"])), asked
        else:
            return asked


def test_stopped_anywhere_and_resumed_it_ends_in_the_same_bits(world, tmp_path):
    """At updates, in both dev evaluations and in the test evaluation."""
    settings = {"batch_size": 24, "epochs": 2, "max_eval_rows": 8}
    assert stops_that_change_nothing(lambda name: job(world, "storycloze", tmp_path / name, **settings)) >= 12


def test_a_network_that_learns_thin_matrices_is_saved_as_what_they_make_of_it(world, tmp_path):
    tuned = network(world, "rte", lora_rank=2)
    learnt = {name for name, part in tuned.named_parameters() if part.requires_grad}
    assert learnt == {"head.weight", "head.bias"} | {name for name in learnt if "low_rank" in name}
    run(job(world, "rte", tmp_path, lora_rank=2))
    before, after = load_file(world["model"] / "model.safetensors"), load_file(tmp_path / "model/model.safetensors")
    assert not any("low_rank" in name for name in after)
    assert {len(after[f"gpt.{name}"]) - len(part) for name, part in before.items()} == {0, 3}
    for name, part in before.items():
        change = after[f"gpt.{name}"][: len(part)] - part
        rank = torch.linalg.matrix_rank(change, atol=1e-5).item() if part.ndim == 2 else int(change.any())
        assert rank == (2 if part.ndim == 2 and name.startswith("blocks.") else 0), name
    with pytest.raises(InputError, match=r"lora_rank = 16: expected less than 16, the narrower side of blocks"):
        network(world, "rte", lora_rank=MODEL.n_embd)


@pytest.mark.parametrize(("select", "stops", "rank"), [("held-out", 9, 2), ("refit", 14, None)])
def test_stopped_anywhere_it_chooses_the_same_epoch_and_ends_in_the_same_bits(world, tmp_path, select, stops, rank):
    """At updates of either training, in evaluations on held-out rows, and in that on dev rows."""
    settings = {"batch_size": 40, "epochs": 2, "max_eval_rows": 8, "select": select, "lora_rank": rank}
    assert stops_that_change_nothing(lambda name: job(world, "rte", tmp_path / name, **settings)) >= stops


def test_checkpoints_by_time_change_nothing(world, tmp_path, monkeypatch):
    run(job(world, "stsb", tmp_path / "plain"))
    monkeypatch.setattr(finetune, "_CHECKPOINT_SECONDS", 0.0)
    given = job(world, "stsb", tmp_path / "often")
    with pytest.raises(process.Interrupted):
        run(given, StopAfter(13))
    assert len(list((tmp_path / "often/checkpoints").glob("step-*"))) == 2  # the newest two are kept
    run(given)
    assert outcome(tmp_path / "often") == outcome(tmp_path / "plain")


def wait_for(condition, child, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert child.poll() is None, child.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_then_terminated_then_finished_equals_undisturbed(world, tmp_path):
    settings = {"batch_size": 2, "epochs": 5, "lr": 1e-3}
    run(job(world, "mnli", tmp_path / "whole", **settings))
    given = job(world, "mnli", tmp_path / "disturbed", **settings)
    workspace = tmp_path / "disturbed"
    workspace.mkdir()
    (workspace / "job.json").write_text(json.dumps(given), encoding="utf-8")

    def start():
        command = [sys.executable, "-m", "gptcore.training.finetune", str(workspace / "job.json")]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])

    def steps():
        return max([int(path.name[5:]) for path in (workspace / "checkpoints").glob("step-*")], default=0)

    child = start()
    wait_for(lambda: steps() >= 30, child)
    time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    assert child.wait(timeout=120) == -signal.SIGKILL
    assert not (workspace / "result.json").exists()

    reached = steps()
    child = start()
    wait_for(lambda: steps() > reached, child)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=120) == process.EXIT_INTERRUPTED
    assert "resuming from" in child.stderr.read()
    assert not (workspace / "result.json").exists()

    run(given)
    assert outcome(workspace) == outcome(tmp_path / "whole")


# Bad input ------------------------------------------------------------------------------------------------------------


def test_a_run_with_other_settings_does_not_go_on_from_the_checkpoint(world, tmp_path):
    with pytest.raises(process.Interrupted):
        run(job(world, "rte", tmp_path), StopAfter(3))
    with pytest.raises(InputError, match=r"another run: lr = 0\.01 there, 0\.02 here"):
        run(job(world, "rte", tmp_path, lr=2e-2))


@pytest.mark.parametrize(("change", "message"), expected(__file__, "test_bad_jobs_end_with_one_line_and_exit_code_2"))
def test_bad_jobs_end_with_one_line_and_exit_code_2(world, tmp_path, capsys, change, message):
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**job(world, "rte", tmp_path / "work"), **change}), encoding="utf-8")
    assert process.main(finetune.run, [str(path)]) == process.EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(error)


def test_a_dataset_of_another_tokenizer_is_refused_before_any_work(world, tmp_path):
    other = pretrained(tmp_path / "model")
    (other / "meta.json").write_text(json.dumps({"tokenizer_digest": "b" * 64}), encoding="utf-8")
    given = {**job(world, "rte", tmp_path / "work"), "model": str(other)}
    with pytest.raises(InputError, match=f"encoded with tokenizer {DIGEST}, the model .* expects {'b' * 64}"):
        run(given)
    given = job(world, "rte", tmp_path / "work", pretrained=False)
    given["model_config"]["n_vocab"] = 31
    with pytest.raises(InputError, match="n_vocab = 30, the model None has 31"):
        run(given)
    assert not (tmp_path / "work/checkpoints").exists()


def test_evaluating_on_another_tasks_rows_is_refused(world, tmp_path):
    run(job(world, "rte", tmp_path, epochs=1))
    with pytest.raises(InputError, match="found the task mnli, expected rte"):
        evaluate(tmp_path / "model", world["mnli"], "dev")
    with pytest.raises(InputError, match="test"):
        evaluate(tmp_path / "model", world["rte"], "test")


def test_a_loss_that_is_not_finite_names_the_rows(world, tmp_path, capsys):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job(world, "rte", tmp_path / "work", lr=1e38)), encoding="utf-8")
    assert process.main(finetune.run, [str(path)]) == process.EXIT_NON_FINITE
    error = capsys.readouterr().err
    assert "batch from: " in error
    assert "RTE/train.tsv:" in error


def test_a_saved_model_is_in_eval_mode_and_scores_without_the_language_model(world, tmp_path, monkeypatch):
    run(job(world, "rte", tmp_path, epochs=1))
    model, _ = ClassificationModel.load(tmp_path / "model")
    assert not model.training
    monkeypatch.setattr(GPT, "logits", lambda *_: pytest.fail("the language model's head was used"))
    assert 0.0 <= evaluate(tmp_path / "model", world["rte"], "dev", max_rows=5)["score"] <= 1.0
