"""`gptmill evaluate --harness`: as the harness itself on transformers' export, resumable, a column a task."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import lm_eval
import pytest
import torch
import transformers
from lm_eval.tasks import TaskManager

from flows.cli import models
from flows.cli.main import main
from flows.forms.references import pretrained_model
from gptcore.config import ModelConfig
from gptcore.evaluation import harness
from gptcore.evaluation.harness import HarnessModel
from gptcore.evaluation.likelihood import encoder_likelihood
from gptcore.models.files.export import export_hugging_face
from gptcore.models.transformer import GPT
from gptcore.text.bpe import WordTokenizer
from gptcore.text.tokenizer import Tokenizer
from tasks.stages.evaluation import kept_harness
from tasks.store.store import Store
from tests.flows.foreign import foreign

ROWS = [
    {"question": f"{start} a {name} ?", "right": n % 2, "text": f"the {name} sat on the mat , and knew where ."}
    for start in ("is it", "where was")
    for n, name in enumerate(("cat", "sailor", "garden", "key"))
]
METRICS = ("acc", "acc_norm", "brier_score")
CHOICES = {"output_type": "multiple_choice", "doc_to_text": "{{question}}", "doc_to_choice": ["the cat", "an old key"]}


def task(folder: Path, name: str, rows: Path, **settings: Any) -> None:
    """A task's file; YAML has JSON in it."""
    given = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(rows)}}}
    given |= {"test_split": "test", "doc_to_target": "right", **CHOICES}
    given |= {"metric_list": [{"metric": metric} for metric in METRICS]}
    (folder / f"{name}.yaml").write_text(json.dumps({**given, **settings}), encoding="utf-8")


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of three tasks and a group of two of them."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda _: None)  # seconds, for the machine's description
    folder, rows = tmp_path / "tasks", tmp_path / "rows.jsonl"
    folder.mkdir()
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    task(folder, "cats", rows)
    task(folder, "keys", rows, doc_to_choice=["yes", "the sailor knew"], num_fewshot=1)
    told = {"doc_to_text": "", "doc_to_target": "{{text}}", "metric_list": [{"metric": "word_perplexity"}]}
    task(folder, "told", rows, output_type="loglikelihood_rolling", doc_to_choice=None, **told)
    group = {"group": "both", "task": ["cats", "keys"], "aggregate_metric_list": [{"metric": "acc"}]}
    (folder / "both.yaml").write_text(json.dumps(group), encoding="utf-8")
    return str(folder)


def gpt1(folder: Path) -> Path:
    """A folder of GPT-1's, as transformers writes it."""
    words = WordTokenizer.train([row["question"] + row["text"] + "the cat an old key yes" for row in ROWS], 40)
    torch.manual_seed(1)
    shape = ModelConfig(n_vocab=words.n_vocab, n_ctx=48, n_layer=2, n_head=2, n_embd=16, n_inner=32, init_std=0.4)
    export_hugging_face(GPT(shape).eval(), words, folder)
    return folder


def transformers_model(folder: Path) -> Any:
    """The harness' own model of transformers' kind; `accelerate`, which it imports, is for several processes alone."""
    for name in ("accelerate", "accelerate.utils"):
        sys.modules.setdefault(name, MagicMock())
    from lm_eval.models.huggingface import HFLM

    words = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    network = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
    begin = 0 if words.eos_token_id is None else None  # it asks for an id that no row needs: each has a context
    return HFLM(network, tokenizer=words, batch_size=2, prefix_token_id=begin)


def found(store: str) -> dict[str, Mapping[str, Any]]:
    """Task or group -> its newest results."""
    records = reversed(Store(store).records("harness"))
    made = {(each.manifest["config"].get("task") or each.manifest["config"]["group"]): each for each in records}
    return {name: record.manifest["counts"]["results"] for name, record in made.items()}


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize("kind", ["gpt", "gpt2"])
def test_scores_are_the_harness_own_on_transformers_export(
    kind: str, tasks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPT-1's texts without a context stand behind a full stop here, for which transformers has nothing."""
    folder = gpt1(tmp_path / "m") if kind == "gpt" else foreign(tmp_path / "m", "gpt2")
    names, store, out = ["cats", "keys", *(["told"] if kind == "gpt2" else [])], str(tmp_path / "store"), tmp_path / "o"
    command = ["evaluate", "--harness", ",".join(names), "--include-path", tasks, "--model", str(folder)]
    assert main([*command, "--store", store]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == names
    assert main(["export", "--model", "latest", "--store", store, "--out", str(out)]) == 0
    manager = TaskManager(include_path=tasks, include_defaults=False)
    theirs = lm_eval.simple_evaluate(transformers_model(out), tasks=names, task_manager=manager)
    ours = found(store)
    for name in names:
        expected = theirs["results"][name]
        assert {*ours[name]} == {*expected}
        for metric, value in expected.items():
            assert ours[name][metric] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value)
    assert f"acc {theirs['results']['cats']['acc,none']:.4f}" in printed[0]
    assert len({ours["cats"]["brier_score,none"], ours["keys"]["brier_score,none"]}) == 2


@pytest.mark.usefixtures("prefect_server")
def test_what_was_scored_before_a_kill_is_not_scored_again(
    tasks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, scored, real = str(tmp_path / "store"), [], harness.harness_scores
    command = ["evaluate", "--model", str(foreign(tmp_path / "m", "gpt2")), "--store", store, "--include-path", tasks]

    def counted(model: HarnessModel, each: Any, limit: int | None) -> dict[str, Any]:
        scored.append(each.task_name)
        if scored == ["cats", "keys"]:
            raise KeyboardInterrupt
        return real(model, each, limit)

    monkeypatch.setattr("tasks.stages.harness.harness_scores", counted)
    with pytest.raises(KeyboardInterrupt):
        main([*command, "--harness", "cats,keys"])
    assert main([*command, "--harness", "cats,keys"]) == 0
    assert scored == ["cats", "keys", "keys"]
    for more in (["--limit", "3"], ["--num-fewshot", "2"]):
        assert main([*command, "--harness", "cats", *more]) == 0
    assert scored[3:] == ["cats", "cats"]
    assert found(store)["cats"]["sample_len"] == len(ROWS)

    moved = tmp_path / "moved.jsonl"
    moved.write_text((tmp_path / "rows.jsonl").read_text(), encoding="utf-8")
    task(Path(tasks), "cats", moved)
    assert main([*command, "--harness", "cats"]) == 0
    assert len(scored) == 5, "the same rows, from another place"
    moved.write_text("".join(json.dumps({**row, "right": 1}) + "\n" for row in ROWS), encoding="utf-8")
    assert main([*command, "--harness", "cats"]) == 0
    task(Path(tasks), "cats", moved, doc_to_text="{{question}} !")
    assert main([*command, "--harness", "cats"]) == 0
    assert scored[5:] == ["cats", "cats"]


@pytest.mark.usefixtures("prefect_server")
def test_a_group_is_the_mean_of_its_tasks_and_one_column(
    tasks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "TaskManager", partial(TaskManager, include_defaults=False))
    store = Store(str(tmp_path / "store"))
    folder = str(foreign(tmp_path / "m", "bert"))
    results = models.harness(store, folder, ["both"], tasks)
    assert list(results) == ["cats", "keys", "both"]
    mean = (results["cats"]["results"]["acc,none"] + results["keys"]["results"]["acc,none"]) / 2
    assert results["both"]["results"]["acc,none"] == pytest.approx(mean)
    models.harness(store, folder, ["keys"], tasks, num_fewshot=2)
    models.harness(store, folder, ["keys"], tasks, limit=2)
    columns = kept_harness(store, pretrained_model(store, "m"))
    assert columns["lm-eval/both/acc"] == pytest.approx(100 * mean)
    assert {*columns} == {"lm-eval/both/acc", "lm-eval/keys/acc/2-shot", "lm-eval/keys/acc_norm/2-shot"}


def test_an_encoder_answers_by_pseudo_likelihood(tmp_path: Path) -> None:
    """Each piece of the continuation alone is masked, as transformers scores it; the context is seen."""
    folder = foreign(tmp_path / "m", "bert")
    words = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    model = HarnessModel(folder, folder)
    asked = [("where was a cat ?", " an old key"), ("", "the sailor knew"), ("the old sailor", " sat on the mat .")]

    def plain(context: str, continuation: str) -> tuple[float, bool]:
        before = words.encode(context, add_special_tokens=False)
        after = words.encode(continuation, add_special_tokens=False)
        total, greedy = 0.0, True
        for at, piece in enumerate(after, start=1 + len(before)):
            ids = [words.cls_token_id, *before, *after, words.sep_token_id]
            ids[at] = words.mask_token_id
            with torch.no_grad():
                logits = network(torch.tensor([ids])).logits[0, at].double()
            total += float(logits.log_softmax(-1)[piece])
            greedy &= int(logits.argmax()) == piece
        return total, greedy

    class Asked:
        def __init__(self, *args: Any) -> None:
            self.args = args

    steps: list[tuple[int, int]] = []
    model.progress = lambda *done: steps.append(done)
    for (total, greedy), pair in zip(model.loglikelihood([Asked(*each) for each in asked]), asked, strict=True):
        assert (total, greedy) == (pytest.approx(plain(*pair)[0], abs=1e-4), plain(*pair)[1])
    assert steps[-1] == (3, 3)
    piece = int(network(torch.tensor([[2, 4, 3]])).logits[0, 1].argmax())
    likelihood = encoder_likelihood(str(folder), Tokenizer.load(folder).specials)
    _, is_greedy = likelihood.greedy_continuations([([], [piece]), ([], [piece + 1]), ([piece], [])])
    assert is_greedy.tolist() == [True, False, True]
    assert model.loglikelihood_rolling([Asked("the sailor knew")]) == [pytest.approx(plain("", "the sailor knew")[0])]
    with pytest.raises(harness.InputError, match="found BERT, an encoder; the task has its answers written"):
        model.generate_until([Asked("where", {})])


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--harness", "catz"], "--harness: found 'catz', expected a task or a group of the harness (cats)"),
        (["--harness", "broken"], "--harness: found FileNotFoundError: "),
        (["--harness", "cats", "--limit", "0"], "--limit: found 0, expected 1 or more"),
        (["--harness", "cats", "--num-fewshot", "-1"], "--num-fewshot: found -1, expected 0 or more"),
        (["--harness", "cats", "--include-path", "none/here"], "--include-path: found 'none/here', expected a folder"),
        (["--harness", ","], "--harness: found no task"),
        (["rte", "--harness", "cats"], "--harness: found rte beside it, expected no TASK"),
        (["rte", "--limit", "2"], "--limit: found no --harness beside it"),
        ([], "TASK: found none"),
    ],
)
def test_bad_usage_is_one_line(
    more: list[str],
    expected: str,
    tasks: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(harness, "TaskManager", partial(TaskManager, include_defaults=False))
    task(Path(tasks), "broken", tmp_path / "nothing.jsonl")
    own = ["--include-path", tasks] if "--include-path" not in more and "--harness" in more else []
    models_folder = str(gpt1(tmp_path / "m"))
    assert main(["evaluate", *more, *own, "--store", str(tmp_path / "store"), "--model", models_folder]) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("gptmill: "))
    assert line.startswith(f"gptmill: error: {expected}")
    assert Store(str(tmp_path / "store")).records("harness") == []


def test_without_the_extra_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models, "find_spec", lambda _: None)
    assert main(["evaluate", "--harness", "cats", "--store", str(tmp_path / "store")]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == "gptmill: error: --harness: found no package lm_eval, expected pip install 'gptmill[lm-eval]'"
