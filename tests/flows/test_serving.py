"""Models of a store, found and used without a server or through MLflow; which models a submission takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch

from flows import inference
from flows.cli import models
from flows.cli.main import main
from flows.forms.references import any_model
from flows.forms.references import fine_tuned_model as fine_tuned
from flows.inference import predict
from flows.serving.answering import Predictions
from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import LSTMConfig, ModelConfig
from gptcore.evaluation.generate import generate
from gptcore.evaluation.inference import continue_lines
from gptcore.evaluation.predict import TaskModel
from gptcore.models.transformer import GPT
from gptcore.nlu.blimp import COLUMNS
from gptcore.nlu.registry import task_spec
from gptcore.text.tokenizer import Tokenizer
from tasks.report.entries import task_interface
from tasks.report.score import Score
from tasks.report.suites import EXPERIMENT, Suite, kept_leaderboard, open_suite, our_rows, record_row, row_of
from tasks.store.artifact import Artifact, Recipe
from tasks.store.lineage import model_files, tokenizer_of
from tasks.store.references import best_models, fine_tuned_model, pretrained_model
from tasks.store.store import Store
from tasks.tracking.pyfunc import TaskPredictor, write_mlmodel
from tasks.tracking.tracker import Tracker
from tests.expected import expected as table_of
from tests.flows.world import with_blimp
from tests.gptcore.hub_uploads import hub_of_uploads
from tests.gptcore.tiny_glue import save_model, tokenizer

ROW = [b'{"premise": "the cat sat", "hypothesis": "the cat"}\n']
TEXT = [b"The cat sat on the mat.\n", b"A bird runs.\n"]


class Shelf:
    """A store with a tokenizer, a pre-trained model and models fine-tuned from it."""

    def __init__(self, root: Path) -> None:
        torch.set_num_threads(1)
        self.store, self.words = Store(root), tokenizer()
        self.tokenizer = self._put("tokenizer", {}, {}, self.words.save)
        self.checkpoint = self.pretrain(0)

    def pretrain(self, seed: int) -> Artifact:
        torch.manual_seed(seed)
        shape = ModelConfig(n_vocab=self.words.n_vocab, n_ctx=16, n_layer=1, n_head=2, n_embd=8, n_inner=32)
        inputs = {"tokenizer": self.tokenizer}
        config = {"seed": seed, "model": recorded(shape)}
        return self._put("pretrain", config, inputs, lambda out: GPT(shape).save(out / "model"))

    def finetune(
        self, task: str, checkpoint: Artifact, seed: int = 0, score: float = 0.5, data: str = "real", dev_rows: int = 9
    ) -> Artifact:
        files = {"files": data, "tokenizer": self.tokenizer}
        rows = self._put("dataset", {"task": task}, files, lambda _: None, {"synthetic": data == "generated"})
        config, inputs = {"task": task, "finetune": {"seed": seed}}, {"checkpoint": checkpoint, "dataset": rows}
        counts = {"dev/score": score, "rows": {"dev": dev_rows}}
        return self._put("finetune", config, inputs, lambda out: save_model(task, self.words, out / "model"), counts)

    def _put(self, stage: str, config: dict, inputs: dict, write, counts: dict | None = None) -> Artifact:
        def produce(out: Path) -> dict:
            write(out)
            return counts or {}

        return self.store.build(Recipe(stage, 1, config, inputs), produce).artifact


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("store"))


def test_rows_are_answered_by_a_model_of_the_store_or_of_a_folder(shelf, tmp_path):
    model = shelf.finetune("rte", shelf.checkpoint)
    shelf.finetune("qnli", shelf.checkpoint)  # newer, but of another task
    found = [list(inference.predict(shelf.store, "rte", ref, ROW)) for ref in (model.short, model.url, "latest")]
    folder = str(shelf.store.local(model) / "model")
    found.append(list(inference.predict(Store(tmp_path), "rte", folder, ROW, tokenizer=shelf.tokenizer.url)))
    found.append(list(inference.predict(Store(tmp_path), "rte", model.url, ROW)))  # another store's address
    assert all(answers == found[0] for answers in found)
    assert set(found[0][0]) == {"line", "label", "probabilities"}
    with pytest.raises(InputError, match=f"--model {model.short}: a model for rte, expected one for mnli"):
        inference.predict(shelf.store, "mnli", model.short, ROW)
    with pytest.raises(InputError, match="--model latest: found no model for mnli"):
        inference.predict(shelf.store, "mnli", "latest", ROW)


@pytest.mark.parametrize("task", ["sst2", "stsb", "race", "openentity"])
def test_predict_serve_and_mlflow_give_a_row_one_answer(task, shelf, tmp_path, capsys):
    spec = task_spec(task)
    columns = (*spec.text_columns, *spec.choices)
    rows = [{name: f"{name} the cat sat mention it mention {row}" for name in columns} for row in range(3)]
    table, out = tmp_path / "rows.csv", tmp_path / "out.jsonl"
    model = shelf.finetune(task, shelf.checkpoint)
    pd.DataFrame(rows).to_csv(table, index=False)
    assert main(["predict", task, str(table), "--out", str(out), "--store", shelf.store.url]) == 0
    assert f"model: {model.short} {task} seed 0" in (said := capsys.readouterr().err)
    assert f"{out}: 3 rows" in said
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [{name: answer[name] for name in columns} for answer in answers] == rows
    folder, words = model_files(model)
    service = Predictions(TaskModel(folder, Tokenizer.load(str(words))))
    served = service.answer(service.read(rows)[0], lambda: None)
    loaded = TaskPredictor(model).predict(pd.DataFrame(rows)).to_dict("records")
    for answer, one, other in zip(answers, served, loaded, strict=True):
        prediction = answer["prediction"]
        assert prediction == other[next(iter(other))]
        if task == "openentity":
            assert (json.loads(prediction), answer["probability person"]) == (
                one["labels"],
                one["probabilities"]["person"],
            )
        elif task == "stsb":
            assert prediction == one["score"]
        else:
            shares = {name: other[f"probability {name}"] for name in one["probabilities"]}
            assert (prediction, answer["probability"]) == (one["label"], one["probabilities"][prediction])
            assert shares == one["probabilities"]


def test_mlflow_answers_rows_without_a_text_blank_and_keeps_ids(shelf, tmp_path):
    model = shelf.finetune("rte", shelf.checkpoint)
    write_mlmodel(tmp_path / "mlflow", model, task_interface(task_spec("rte")))
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "mlflow"))
    rows = pd.DataFrame({"sentence1": ["the cat sat", None, "a cat"], "sentence2": ["a cat", "a", "the cat " * 50]})
    for asked in (rows, rows.assign(id=[7, 8, 9])):
        found = loaded.predict(asked)
        assert [*found.columns][-1] == "note"
        assert found["note"].str.contains("^$|expected text that is not empty|48 of .* tokens were read").all()
        assert found["label"].isna().tolist() == [False, True, False]
        assert list(found.get("id", [])) == list(asked.get("id", []))
    plain = loaded.predict(rows[:1])
    assert "note" not in plain.columns
    assert plain["label"][0] == found["label"][0]
    with pytest.raises(mlflow.MlflowException, match="the table, row 1: found only 'sentence1', expected the field"):
        loaded.predict(rows[["sentence1"]])


def test_a_task_that_is_none_is_told_with_those_of_ones_own(shelf, monkeypatch, capsys):
    monkeypatch.setattr("tasks.store.references.fine_tuned_tasks", lambda _: ["weather", "rte"])
    assert main(["predict", "nosuch", "--store", shelf.store.url]) == 2
    assert "task: found 'nosuch', expected one of weather, rte, mnli," in capsys.readouterr().err


def test_text_is_scored_and_generated_by_either_kind_of_model(shelf, tmp_path):
    fine_tuned = shelf.finetune("sst2", shelf.checkpoint)
    refs = ["latest", shelf.checkpoint.short, shelf.checkpoint.url]
    scores = [inference.perplexity(shelf.store, ref, TEXT) for ref in refs]
    assert all(score == scores[0] for score in scores)
    folder = str(shelf.store.local(shelf.checkpoint) / "model")
    assert inference.perplexity(Store(tmp_path), folder, TEXT, tokenizer=shelf.tokenizer.url) == scores[0]
    assert inference.perplexity(shelf.store, fine_tuned.short, TEXT) != scores[0]
    for ref in (*refs, fine_tuned.short, fine_tuned.url):
        assert len(list(generate(*inference.language_model(shelf.store, ref), "the cat", max_tokens=5, top_k=3))) == 5
    assert json.dumps(scores)


def test_lines_are_continued_in_batches_as_each_prompt_alone(shelf):
    prompts = [*["The cat", "a bird runs because it was tired", "who said that?"] * 3]
    lines = [f"{prompt}\n".encode() for prompt in prompts]
    model = inference.language_model(shelf.store, "latest")
    found = list(continue_lines(*model, iter(lines), max_tokens=20, seed=3))
    assert [answer["prompt"] for answer in found] == prompts
    for seed, answer in enumerate(found, start=3):
        alone = generate(*model, answer["prompt"], max_tokens=20, seed=seed)
        assert answer["continuation"] == "".join(alone)
    answers = continue_lines(*model, iter([*lines[:8], b" \n"]), max_tokens=1)
    assert sum(1 for _ in zip(range(8), answers, strict=False)) == 8  # those before are answered
    with pytest.raises(InputError, match="standard input, line 9: found ' ', expected a word or more"):
        next(answers)


def test_a_folder_without_its_tokenizer_and_an_unknown_digest_are_refused(shelf):
    with pytest.raises(
        InputError, match=r"--model: found '\./model', expected an address with /pretrain/<digest>, or a model's"
    ):
        inference.perplexity(shelf.store, "./model", TEXT)
    with pytest.raises(InputError, match="pretrain, finetune, imported or adapt 'feed': found no such artifact"):
        inference.language_model(shelf.store, "feed")
    words = shelf.tokenizer.short
    with pytest.raises(
        InputError,
        match=f"^{words}: an artifact of the stage tokenizer, expected pretrain, finetune, imported or adapt$",
    ):
        inference.language_model(shelf.store, words)
    with pytest.raises(InputError, match=f"^{words}: an artifact of the stage tokenizer, expected finetune$"):
        fine_tuned_model(shelf.store, words, "rte")
    with pytest.raises(InputError, match="no tokenizer here"):
        inference.perplexity(shelf.store, "model", TEXT, tokenizer=shelf.checkpoint.url)


def test_a_submission_takes_the_best_model_of_each_task_and_of_its_checkpoint(tmp_path):
    shelf = Shelf(tmp_path)
    other = shelf.pretrain(1)
    scores = (0.6, 0.7, 0.7, 0.2)
    cola = [shelf.finetune("cola", shelf.checkpoint, seed, score) for seed, score in enumerate(scores)]
    shelf.finetune("cola", other, score=0.9)
    mrpc = shelf.finetune("mrpc", shelf.checkpoint)
    shelf._put("finetune", {"task": "rte"}, {"dataset": "0" * 64}, lambda out: None)  # from scratch
    assert best_models(shelf.store, shelf.checkpoint, False) == {"cola": cola[2], "mrpc": mrpc}  # of equals the newest
    assert best_models(shelf.store, shelf.checkpoint, True) == {}


def test_the_best_model_is_the_best_on_one_set_of_rows(tmp_path):
    """A score on the generated world, or on a handful of rows, says nothing beside one on the real dev set."""
    shelf = Shelf(tmp_path)
    real = shelf.finetune("rte", shelf.checkpoint, 0, 0.56)
    shelf.finetune("rte", shelf.checkpoint, 1, 1.0, dev_rows=4)
    generated = shelf.finetune("rte", shelf.checkpoint, 2, 0.97, data="generated")
    assert fine_tuned_model(shelf.store, "best", "rte") == generated, "the newest one's rows"
    better = shelf.finetune("rte", shelf.checkpoint, 3, 0.6)
    shelf.finetune("rte", shelf.checkpoint, 4, 0.5)
    last = shelf.finetune("rte", shelf.checkpoint, 5, 0.2)
    shelf.finetune("mrpc", shelf.checkpoint, score=0.9)
    assert fine_tuned_model(shelf.store, "best", "rte") == better != real
    assert fine_tuned_model(shelf.store, "latest", "rte") == last
    assert best_models(shelf.store, shelf.checkpoint, False)["rte"] == better
    assert best_models(shelf.store, shelf.checkpoint, True) == {"rte": generated}


def test_an_artifact_of_another_store_has_its_own_ancestors(tmp_path):
    here, there = Shelf(tmp_path / "here"), Shelf(tmp_path / "there")
    model = there.finetune("rte", there.pretrain(7))
    assert tokenizer_of(here.store, model) == there.tokenizer
    (tmp_path / "empty").mkdir()
    assert tokenizer_of(Store(tmp_path / "empty"), model) == there.tokenizer


def test_the_latest_pretrained_model_is_a_transformer(tmp_path):
    shelf = Shelf(tmp_path)
    config = {"model": recorded(LSTMConfig(n_units=8))}
    lstm = shelf._put("pretrain", config, {"tokenizer": shelf.tokenizer}, lambda out: None)
    assert pretrained_model(shelf.store, "latest") == shelf.checkpoint
    assert pretrained_model(shelf.store, lstm.short) == lstm


def test_scores_need_no_server_and_are_found_in_the_store_again(shelf, world, tmp_path, monkeypatch, capsys):
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a Prefect server was started")

    monkeypatch.setattr("prefect.server.api.server.SubprocessASGIServer.start", never)
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    model = shelf.finetune("rte", shelf.checkpoint)
    found = [models.evaluate(shelf.store, "rte", model.short, world[1]) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0]["dev"]["score"] == 100 * shelf.store.manifest(shelf.store.list("evaluation")[0])["counts"]["score"]
    assert len(shelf.store.list("evaluation")) == 1
    told = [line.split()[0] for line in capsys.readouterr().err.splitlines()]
    assert told == ["log", "datasets", "evaluation"] * 2
    zero = [models.zero_shot(shelf.store, shelf.checkpoint.short, world[1], ["sst2"], 20) for _ in range(2)]
    assert zero[0] == zero[1]
    assert zero[0]["sst2"]["rows"] == 20
    assert len(shelf.store.list("zero-shot")) == 1
    measured = models.zero_shot(shelf.store, shelf.checkpoint.short, with_blimp(world, tmp_path / "d")[1], ["blimp"])
    assert list(measured) == list(COLUMNS)
    assert measured["blimp"]["pairs"] == 2 * 67
    assert len(shelf.store.list("blimp")) == 1
    with pytest.raises(InputError, match="--tasks: found 'rte', expected one of cola"):
        models.zero_shot(shelf.store, "latest", world[1], ["rte"])


def test_latest_and_best_of_an_address_are_as_in_its_store(tmp_path):
    here, there = Store(tmp_path / "here"), Shelf(tmp_path / "pretrain" / "there")  # a folder called like a stage
    lstm = {"model": recorded(LSTMConfig(n_vocab=9, n_units=4, n_embd=4))}
    there._put("pretrain", lstm, {"tokenizer": there.tokenizer}, lambda _: None)
    rte = [there.finetune("rte", there.checkpoint, seed, score) for seed, score in enumerate((0.6, 0.5))]
    there.finetune("cola", there.checkpoint)
    url = there.store.url
    assert pretrained_model(here, f"{url}/pretrain/latest") == there.checkpoint
    assert fine_tuned_model(here, f"{url}/finetune/latest", "rte") == rte[1]
    assert fine_tuned_model(here, f"{url}/finetune/best", "rte") == rte[0]
    assert any_model(here, rte[0].url) == rte[0]
    assert any_model(here, there.checkpoint.url) == there.checkpoint
    alone = Shelf(tmp_path / "alone").store
    for artifact in alone.list("pretrain"):
        shutil.rmtree(alone.local(artifact))
    Shelf._put(SimpleNamespace(store=alone), "pretrain", lstm, {}, lambda _: None)
    with pytest.raises(InputError, match=r"found only LSTM in .*, expected one"):
        pretrained_model(alone, "latest")


def test_a_digest_that_begins_two_models_wants_to_be_longer(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path)
    first = shelf.checkpoint.digest[0]
    model = next(m for seed in range(200) if (m := shelf.finetune("rte", shelf.checkpoint, seed)).digest[0] == first)
    said = rf"{first}: found \d of this name, {shelf.checkpoint.short} \(a pre-trained model\), .*; expected a longer"
    with pytest.raises(InputError, match=said):
        any_model(shelf.store, first)
    assert any_model(shelf.store, model.short) == model
    assert any_model(shelf.store, f"{shelf.checkpoint.short} 1 x 8 of 2026") == shelf.checkpoint, "a list's label"


def test_a_row_of_the_leaderboard_stands_for_its_models(tmp_path, monkeypatch, capsys):
    """A row's digest alone, its name or its page will do, of another store, too; MLflow is not asked twice."""
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shelf, tracker = Shelf(tmp_path / "store"), Tracker()
    assert not our_rows(ask=True)
    assert not (tmp_path / "mlflow.db").exists(), "made by nobody who only looks"
    reached = {seed: shelf.finetune("rte", shelf.checkpoint, seed, score) for seed, score in enumerate((0.5, 0.7, 0.9))}
    pages = {}
    for label, seeds in (("of", (0, 1)), ("others", (2,)), ("scratch", ())):
        suite = Suite(label, "ours", {"checkpoint": shelf.checkpoint.digest} if seeds else {"model": {}})
        with open_suite(tracker, suite) as run:
            record_row(run, row_of(suite, [Score("rte", 0, "dev", {"rte": 60.0}, origin=suite.identity)]))
        for seed in seeds:
            tags = {"kind": "finetune", "suite_run": run.run_id, "model": reached[seed].url}
            pages[seed] = tracker.open(EXPERIMENT, f"rte seed {seed}", f"{label}/{seed}", tags, {}, run.run_id).url
        pages[label], pages[f"{label}'s"] = run.url, suite.name
    name, scratch = pages["of's"], pages["scratch's"]
    digest = name.rpartition(" ")[2]
    kept_leaderboard()
    with monkeypatch.context() as patch:
        patch.setattr("tasks.report.suites.read_rows", lambda _: pytest.fail("MLflow was asked"))
        for ref in (digest, name, f"{name} (lr 1e-4)", digest.upper()):
            assert fine_tuned(shelf.store, ref, "rte") == reached[1], "the better of its own two"
            assert any_model(shelf.store, ref) == shelf.checkpoint
            assert any_model(Store(tmp_path / "another"), ref) == shelf.checkpoint
        assert fine_tuned(shelf.store, pages["of"], "rte") == reached[1]
        assert fine_tuned(shelf.store, pages[2], "rte") == reached[2], "a fine-tune's own page"
        near = f"{digest[:5]}{'0' if digest[5] != '0' else '1'}"
        for call, words in (
            (lambda: any_model(shelf.store, scratch), f"{scratch}: a row that starts from random weights"),
            (lambda: fine_tuned(shelf.store, digest, "cola"), f"{name}: found no fine-tuned model for cola"),
            (lambda: any_model(shelf.store, near), f"did you mean {digest}?"),
            (lambda: any_model(shelf.store, "latset"), "did you mean latest?"),
            (lambda: any_model(shelf.store, f"x/#/runs/{'0' * 32}"), f"run {'0' * 32}: found none"),
        ):
            with pytest.raises(InputError, match=words):
                call()
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=ROW))
        assert main(["predict", "rte", "--model", digest, "--store", shelf.store.url]) == 0
    assert f"model: {reached[1].short} rte seed 1, dev score 70.0" in capsys.readouterr().err


def test_a_layout_that_cannot_hold_the_model_exactly_is_refused(shelf, tmp_path):
    model, out = shelf.finetune("rte", shelf.checkpoint, seed=7), str(tmp_path / "out")
    folder, words = str(shelf.store.local(model) / "model"), shelf.tokenizer.url
    message = "a model for rte; the release's arrays are those of a pre-trained model, without a classifier"
    with pytest.raises(InputError, match=f"^--model {model.short}: {message}$"):
        inference.export(shelf.store, model.short, "release", out)
    with pytest.raises(InputError, match="--format onnx: found a pre-trained model, expected a fine-tuned model"):
        inference.export(shelf.store, shelf.checkpoint.short, "onnx", out)
    with pytest.raises(InputError, match="--format onnx: found a model's folder, expected a model of a store"):
        inference.export(shelf.store, folder, "onnx", out, words)
    with pytest.raises(InputError, match="--int8: found --format hugging-face, expected --format onnx"):
        inference.export(shelf.store, shelf.checkpoint.short, "hugging-face", out, int8=True)
    assert not Path(out).exists()


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_looked_up(shelf, tmp_path, capsys):
    (tmp_path / "file").write_text("a")
    for out, message in (
        ("", "--out: found '', expected something that is not blank"),
        ("s3://bucket/x", "--out: found 's3://bucket/x', expected a new folder on this machine"),
        (str(tmp_path / "file" / "x"), f"found no folder at {tmp_path / 'file'} that can be written"),
    ):
        assert main(["export", "--model", "latest", "--store", shelf.store.url, "--out", out]) == 2
        assert message in capsys.readouterr().err


def test_an_export_goes_to_a_branch_of_the_hub(shelf, tmp_path):
    model, out = shelf.finetune("rte", shelf.checkpoint), tmp_path / "out"
    command = [
        sys.executable,
        "-c",
        "import sys; from flows.cli.main import main; sys.exit(main(sys.argv[1:]))",
        "export",
    ]
    command += ["--model", model.short, "--store", shelf.store.url, "--push", "hf://me/mine@chck_1M"]
    with hub_of_uploads() as hub:
        alone = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
        done, refused = (
            subprocess.run(
                [*command, "--out", str(folder)],
                env={**alone, "HF_TOKEN": token},
                capture_output=True,
                text=True,
                check=False,
            )
            for folder, token in ((out, hub.token), (tmp_path / "again", "hf_wrong"))
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{hub.url}/me/mine/commit/1"
    assert hub.files["me/mine@chck_1M"] == {path.name: path.read_bytes() for path in out.iterdir()}
    assert refused.returncode == 1
    (line,) = [line for line in refused.stderr.splitlines() if "failed" in line]
    assert "--push hf://me/mine@chck_1M: " in line
    assert "401" in line
    assert not [
        said for run in (done, refused) for said in (run.stdout, run.stderr) if "hf_" in said.replace("hf_hub", "")
    ]


def test_an_upload_that_cannot_be_is_refused_before_anything_is_written(shelf, tmp_path, capsys, monkeypatch):
    command = ["export", "--model", shelf.checkpoint.short, "--store", shelf.store.url, "--out", str(tmp_path / "out")]
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    no_token = "--push: found no token of the hub, expected HF_TOKEN in the environment or hf auth login"
    no_address = "--push: found 'me/mine', expected hf://ORG/NAME or hf://ORG/NAME@BRANCH"
    no_package = "--push: found no package huggingface_hub, expected pip install 'gptmill[hf]'"
    for address, message in (("hf://me/mine", no_token), ("me/mine", no_address), ("hf://me/mine", no_package)):
        if message == no_package:
            monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        assert main([*command, "--push", address]) == 2
        assert capsys.readouterr().err == f"gptmill: error: {message}\n"
    assert not (tmp_path / "out").exists()


def test_a_nightly_prediction_replaces_yesterdays_once_it_is_whole(shelf, tmp_path, capsys):
    model, rows, out = shelf.finetune("sst2", shelf.checkpoint), tmp_path / "rows.csv", tmp_path / "answers.csv"
    command = ["predict", "sst2", str(rows), "--out", str(out), "--model", model.short, "--store", shelf.store.url]
    rows.write_text("sentence\na fine film\n")
    assert main(command) == 0
    before = out.read_bytes()
    rows.write_text("sentence\na fine film\na dull one\n")
    capsys.readouterr()
    assert main(command) == 2
    refused = f"gptmill: error: --out {out}: is there already, expected a new file, or --force to replace it\n"
    assert capsys.readouterr().err == refused
    with rows.open("a") as file:
        file.write("one,too many\n")
    assert main([*command, "--force"]) == 2, "the last row is broken"
    assert out.read_bytes() == before
    rows.write_text("sentence\na fine film\na dull one\n")
    assert main([*command, "--force"]) == 0
    assert len(out.read_text().splitlines()) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.csv", "rows.csv"]


def test_an_export_replaces_an_export_whole_and_nothing_else(shelf, tmp_path, capsys):
    out, ref = tmp_path / "new" / "exported", shelf.checkpoint.short
    command = ["export", "--model", ref, "--store", shelf.store.url, "--out", str(out)]
    assert main(command) == 0
    files = sorted(path.name for path in out.iterdir())
    assert capsys.readouterr().out.splitlines() == [str(out / name) for name in files]
    (out / "model-int8.onnx").write_text("of another layout")
    assert main(command) == 2
    refused = f"gptmill: error: --out {out}: is there already, expected a new folder, or --force to replace it\n"
    assert capsys.readouterr().err == refused
    assert main([*command, "--force", "--format", "release"]) == 2, "which takes twelve heads"
    assert sorted(path.name for path in out.iterdir()) == sorted([*files, "model-int8.onnx"])
    assert main([*command, "--force"]) == 2
    assert f"--out {out}: found model-int8.onnx there, expected an exported model alone" in capsys.readouterr().err
    (out / "model-int8.onnx").unlink()
    assert main([*command, "--force"]) == 0
    assert sorted(path.name for path in out.iterdir()) == files
    assert [path.name for path in out.parent.iterdir()] == ["exported"]
    (mine := tmp_path / "mine").mkdir()
    (mine / "thesis.txt").write_text("years of work")
    (mine / "config.json").write_text("{}")
    (file := tmp_path / "file").write_text("a")
    capsys.readouterr()
    for other, said in ((mine, "found thesis.txt there, expected"), (file, "is there already, expected a new folder")):
        assert main([*command[:-1], str(other), "--force"]) == 2
        assert f"--out {other}: {said}" in capsys.readouterr().err
    assert sorted(path.name for path in mine.iterdir()) == ["config.json", "thesis.txt"]


# --- what MLflow loads: tables by the data's names of columns or by the fields' own, and lists of answers


@pytest.mark.parametrize(("task", "rows"), table_of(__file__, "test_columns_may_have_any_name_that_predict_takes"))
def test_columns_may_have_any_name_that_predict_takes(shelf: Shelf, tmp_path: Path, task: str, rows: list) -> None:
    write_mlmodel(tmp_path / "model", shelf.finetune(task, shelf.checkpoint), task_interface(task_spec(task)))
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    for row in rows:
        (expected,) = predict(shelf.store, task, "latest", [json.dumps(row).encode()])
        found = loaded.predict(pd.DataFrame([row])).iloc[0]
        assert found["label"] == expected["label"]
        for label, share in expected["probabilities"].items():
            np.testing.assert_allclose(found[f"probability {label}"], share, atol=1e-6)
    with pytest.raises(Exception, match=r"the table: found none of the model's columns, expected "):
        loaded.predict(pd.DataFrame([{"other": "a"}]))
