"""GLUE's zip: what the server expects of it, on generated test files and on the real ones where they are."""

from __future__ import annotations

import dataclasses
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from gptcore.base.errors import InputError
from gptcore.evaluation import submission
from gptcore.evaluation.predict import TaskModel
from gptcore.evaluation.submission import GLUE_TASKS, SUBMISSION, files_of, glue_submission
from gptcore.models.classifier import ClassificationModel
from gptcore.nlu.forms import form_of
from gptcore.nlu.readers import iterate_test
from gptcore.nlu.registry import task_spec
from gptcore.papers.storyworld.write import generate
from tests.expected import expected as table_of
from tests.gptcore.tiny_glue import save_model, texts_of, tokenizer, write_test_file, write_test_files
from tests.gptcore.tiny_tasks import collate, sequences_of
from tests.realdata import real_data

ROWS = 7
SERVER = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX")
NAMES = [f"{name}.tsv" for name in SERVER]
NLI = {"entailment", "neutral", "contradiction"}
WORDS = {"STS-B": None, "MNLI-m": NLI, "MNLI-mm": NLI, "AX": NLI, "QNLI": {"entailment", "not_entailment"}}
WORDS["RTE"] = WORDS["QNLI"]


@pytest.fixture
def small(monkeypatch) -> None:
    """A server that expects ``ROWS`` rows of every file."""
    files = tuple(dataclasses.replace(file, rows=ROWS) for file in SUBMISSION)
    monkeypatch.setattr(submission, "SUBMISSION", files)


@pytest.fixture(scope="module")
def words():
    return tokenizer()


@pytest.fixture(scope="module")
def models(words, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {task: save_model(task, words, folder / task) for task in GLUE_TASKS}


def unpack(path: Path) -> dict[str, list[list[str]]]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {
            name: [line.split("\t") for line in archive.read(name).decode("ascii").removesuffix("\n").split("\n")]
            for name in archive.namelist()
        }


def check_file(name: str, lines: list[list[str]], rows: int) -> None:
    assert lines[0] == ["index", "prediction"]
    assert [line[0] for line in lines[1:]] == [str(row) for row in range(rows)]
    answers = {line[1] for line in lines[1:]}
    wanted = WORDS.get(name.removesuffix(".tsv"), {"0", "1"})
    if wanted is None:
        assert all(re.fullmatch(r"[0-5]\.\d{3}", answer) and float(answer) <= 5 for answer in answers)
    else:
        assert answers <= wanted


def test_a_complete_zip_is_what_the_server_expects(small, words, models, tmp_path):
    data, out, calls = str(tmp_path / "data"), tmp_path / "glue.zip", []
    write_test_files(data, ROWS)
    report = glue_submission(models, words, data, out, progress=lambda *call: calls.append(call))
    assert report == {
        "files": {name: {"rows": ROWS, "published": ROWS} for name in NAMES},
        "complete": True,
        "notes": [],
    }
    files = unpack(out)
    assert list(files) == NAMES
    for name, lines in files.items():
        check_file(name, lines, ROWS)
    assert {call for call in calls if call[1] == ROWS} == {(name, ROWS, ROWS) for name in NAMES}
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["glue.zip"]


def test_answers_are_those_of_the_model_one_row_at_a_time_and_equal_ones_give_equal_bytes(
    small, words, models, tmp_path
):
    outs = [tmp_path / name for name in ("a.zip", "b.zip")]
    write_test_files(str(tmp_path), ROWS)
    for out in outs:
        glue_submission(models, words, str(tmp_path), out)
    assert outs[0].read_bytes() == outs[1].read_bytes()
    found = unpack(outs[0])
    for file in submission.SUBMISSION:
        model, config = ClassificationModel.load(models[file.task])
        spec, answers = task_spec(config["task"]), []
        for texts in texts_of(file, ROWS):
            ids = [np.asarray(words.encode(text)) for text in texts]
            sequences, _ = sequences_of(spec, ids, [], model.gpt.config.n_ctx, words.n_vocab)
            batch = collate(spec, [sequences], [None])
            with torch.no_grad():
                logits, _ = model(batch.tokens, batch.clf_position)
            value = form_of(spec).predict(spec, logits.numpy())[0]
            label = f"{value:.3f}" if spec.score_range else spec.labels[int(value)]
            answers.append({"entailment": "1"}.get(label, "0") if file.name == "WNLI.tsv" else label)
        assert [line[1] for line in found[file.name][1:]] == answers, file.name
    assert len({line[1] for name in ("MNLI-m.tsv", "AX.tsv", "STS-B.tsv") for line in found[name][1:]}) > 3


def test_rows_are_answered_in_their_order_however_they_are_batched(words, models, tmp_path, monkeypatch):
    file = next(file for file in SUBMISSION if file.name == "STS-B.tsv")
    write_test_file(str(tmp_path), file, texts_of(file, 23))
    model = TaskModel(models["stsb"], words)
    examples = list(iterate_test(model.spec, str(tmp_path), file.path, file.index))
    whole = list(model.logits(examples))
    monkeypatch.setattr("gptcore.evaluation.predict.evaluation_tokens", lambda device: 40)
    assert len({logits.tobytes() for logits in whole}) == len(examples)
    for logits, expected in zip(model.logits(iter(examples), at_once=5), whole, strict=True):
        np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_a_generated_world_can_be_rehearsed_on_all_but_the_files_that_it_lacks(words, models, tmp_path):
    generate(tmp_path / "world", seed=7, books=1, characters=1, pages=80)
    data = str(tmp_path / "world" / "datasets")
    report = glue_submission(models, words, data, tmp_path / "glue.zip", tasks=[t for t in GLUE_TASKS if t != "mnli"])
    assert all(counts["rows"] == 60 for counts in report["files"].values())
    for name, lines in unpack(tmp_path / "glue.zip").items():
        check_file(name, lines, 60)
    report = glue_submission(models, words, data, tmp_path / "glue.zip", tasks=["mnli"])
    assert list(unpack(tmp_path / "glue.zip")) == ["MNLI-m.tsv", "MNLI-mm.tsv"]
    assert [note.partition("datasets/")[2] for note in report["notes"] if "left out" in note] == [
        "WNLI/test.tsv: found nothing there; WNLI.tsv is left out",
        "diagnostic/diagnostic.tsv: found nothing there; AX.tsv is left out",
    ]


# --- what is refused ---


def test_a_file_of_another_size_is_refused_before_any_model_is_loaded(words, tmp_path):
    write_test_files(str(tmp_path), 3)
    nowhere = dict.fromkeys(GLUE_TASKS, tmp_path / "nowhere")
    expected = r"CoLA/test\.tsv: found 3 rows, expected 1063"
    with pytest.raises(InputError, match=expected):
        glue_submission(nowhere, words, str(tmp_path), tmp_path / "glue.zip")
    assert not (tmp_path / "glue.zip").exists()


def test_a_rehearsal_names_what_the_server_would_refuse(words, models, tmp_path):
    write_test_files(str(tmp_path), 3)
    report = glue_submission(models, words, str(tmp_path), tmp_path / "glue.zip", tasks=["rte", "cola"])
    assert list(unpack(tmp_path / "glue.zip")) == ["CoLA.tsv", "RTE.tsv"]
    assert report["complete"] is False
    incomplete, cola, rte = report["notes"]
    assert "without SST-2.tsv, MRPC.tsv" in incomplete
    assert "server refuses" in incomplete
    assert "CoLA/test.tsv: found 3 rows, expected 1063" in cola
    assert "RTE/test.tsv: found 3 rows, expected 3000" in rte


def test_the_mnli_model_answers_four_files():
    assert [file.name for file in files_of(["mnli"])] == ["MNLI-m.tsv", "MNLI-mm.tsv", "WNLI.tsv", "AX.tsv"]
    with pytest.raises(InputError, match="tasks: found 'snli', expected some of cola"):
        files_of(["cola", "snli"])


def test_a_missing_test_file_or_model_is_named(words, models, tmp_path):
    write_test_files(str(tmp_path), ROWS)
    (tmp_path / "QQP" / "test.tsv").unlink()
    with pytest.raises(InputError, match=r"found none of QQP/test\.tsv, expected"):
        glue_submission(models, words, str(tmp_path), tmp_path / "glue.zip", tasks=["qqp"])
    (tmp_path / "CoLA" / "test.tsv").unlink()
    with pytest.raises(InputError, match=r"CoLA/test\.tsv: found nothing there"):  # of a complete one
        glue_submission(models, words, str(tmp_path), tmp_path / "glue.zip")
    fewer = {task: folder for task, folder in models.items() if task not in ("rte", "stsb")}
    with pytest.raises(InputError, match="models: found none for stsb, rte"):
        glue_submission(fewer, words, str(tmp_path), tmp_path / "glue.zip")
    with pytest.raises(InputError, match="no folder to write it in"):
        glue_submission(models, words, str(tmp_path), tmp_path / "no" / "glue.zip")


def test_a_model_of_another_task_or_tokenizer_is_refused(words, models, tmp_path):
    write_test_files(str(tmp_path), ROWS)
    with pytest.raises(InputError, match="found a model of the task cola, expected one of rte"):
        glue_submission({"rte": models["cola"]}, words, str(tmp_path), tmp_path / "glue.zip", tasks=["rte"])
    other = tokenizer().train(["a b c"], 1)
    with pytest.raises(InputError, match=f"{other.digest[:12]}"):
        glue_submission(models, other, str(tmp_path), tmp_path / "glue.zip", tasks=["rte"])


@pytest.mark.parametrize(
    ("lines", "message"), table_of(__file__, "test_a_broken_test_file_is_an_error_that_names_its_place")
)
def test_a_broken_test_file_is_an_error_that_names_its_place(words, models, tmp_path, lines, message):
    (tmp_path / "QQP").mkdir()
    (tmp_path / "QQP" / "test.tsv").write_text(lines, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/QQP/test.tsv") + ".*" + re.escape(message)):
        glue_submission(models, words, str(tmp_path), tmp_path / "glue.zip", tasks=["qqp"])
    assert not (tmp_path / "glue.zip").exists()


# --- the real files ---


@pytest.mark.parametrize("file", SUBMISSION, ids=lambda file: file.name)
def test_real_test_files_have_the_published_rows_and_are_answered(file, words, models):
    data = str(real_data(file.path)).removesuffix(f"/{file.path}")
    spec = task_spec(file.task)
    examples = list(iterate_test(spec, data, file.path, file.index))
    assert len(examples) == file.rows
    answered = [row.row for row, _ in TaskModel(models[file.task], words).answered(examples[:200], lambda row: row)]
    assert answered == [f"{file.path}:{row + 2}" for row in range(min(200, file.rows))]


def test_a_zip_of_real_files(words, models, tmp_path):
    data = str(real_data("WNLI").parent)
    report = glue_submission(models, words, data, tmp_path / "glue.zip", tasks=["cola", "stsb"])
    files = unpack(tmp_path / "glue.zip")
    check_file("CoLA.tsv", files["CoLA.tsv"], 1063)
    check_file("STS-B.tsv", files["STS-B.tsv"], 1379)
    assert len(report["notes"]) == 1  # incomplete, but no file of another size
