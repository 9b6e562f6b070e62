"""Models of others through the product: imported by one command, fine-tuned, asked, written again for transformers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from starlette.testclient import TestClient

from flows.cli.main import main
from flows.finetune import finetune_all
from flows.forms.choices import checkpoints_of
from flows.forms.parameters import FinetuneAllParameters
from flows.forms.references import any_model, pretrained_model
from flows.inference import export, predict
from flows.serving.answering import Predictions
from flows.serving.model_server import application
from gptcore.base.errors import InputError
from gptcore.evaluation.predict import TaskModel
from gptcore.text.tokenizer import Tokenizer
from tasks.report.leaderboard import Leaderboard
from tasks.stages.imported import import_model
from tasks.store.counts import ImportedCounts
from tasks.store.lineage import model_files
from tasks.store.references import checkpoint_label, task_model
from tasks.store.store import Store
from tests.flows.foreign import KINDS, foreign
from tests.flows.world import OVERRIDES
from tests.gptcore.hub_server import hub_server
from tests.gptcore.test_finetune import stops_that_change_nothing

FEW = {"finetune": {**OVERRIDES["finetune"], "max_train_rows": 24, "max_eval_rows": 12, "epochs": 1}}
PAIR = {"sentence1": "a cat sat on the mat .", "sentence2": "the cat sat ."}


def tuned(world: tuple[str, str], store: str, checkpoint: str) -> Leaderboard:
    form = FinetuneAllParameters(
        checkpoint=checkpoint,
        store=store,
        datasets=world[1],
        tasks=["rte", "storycloze"],
        seeds=1,
        jobs=1,
        overrides=FEW,
    )
    board = finetune_all(form)
    assert isinstance(board, Leaderboard)
    return board


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize(
    "kind",
    ["bert", "llama", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind not in ("bert", "llama"))],
)
def test_a_folder_is_fine_tuned_asked_and_written_again(
    world: tuple[str, str], store: str, tmp_path: Path, kind: str
) -> None:
    """Its weights are the folder's to the bit, and its own logits those of the folder that it leaves as.

    Its fine-tune, stopped at any of its questions and resumed, ends in the same bits.
    """
    folder, found = foreign(tmp_path / f"my-{kind}", kind), Store(store)
    row = tuned(world, store, str(folder)).rows[0]
    assert row.name.startswith(f"my-{kind} imported ")
    assert set(row.percent) == {"rte", "storycloze"}
    artifact = pretrained_model(found, f"my-{kind}")
    assert checkpoint_label(found, artifact).startswith(f"{artifact.short} imported my-{kind}, ")
    answer = next(predict(found, "rte", "latest", [json.dumps(PAIR).encode()]))
    assert sum(answer["probabilities"].values()) == pytest.approx(1)

    fine_tuned = task_model(found, "rte", best=False)
    assert fine_tuned is not None
    files, words = model_files(fine_tuned)
    service = Predictions(TaskModel(files, Tokenizer.load(str(words))))
    with TestClient(application(service, {"task": "rte"}), base_url="http://127.0.0.1") as client:
        assert client.post("/predict", json=PAIR).json()["probabilities"] == pytest.approx(answer["probabilities"])
    given = found.manifest(fine_tuned)
    dataset = found.artifact("dataset", given["inputs"]["dataset"]["digest"])
    job = {
        "task": "rte",
        "finetune": given["config"]["finetune"],
        "model": str(model_files(artifact)[0]),
        "dataset": str(found.local(dataset)),
        "threads": 1,
    }
    assert stops_that_change_nothing(lambda name: {**job, "workspace": str(tmp_path / name)}) >= 4

    export(found, fine_tuned.short, "hugging-face", str(tmp_path / "tuned"))
    asks = transformers.pipeline("text-classification", str(tmp_path / "tuned"), trust_remote_code=True, top_k=None)
    theirs = asks({"text": PAIR["sentence1"], "text_pair": PAIR["sentence2"]})
    assert {each["label"]: each["score"] for each in theirs} == pytest.approx(answer["probabilities"], abs=1e-5)

    export(found, artifact.short, "hugging-face", str(tmp_path / "out"))
    auto = transformers.AutoModelForCausalLM if KINDS[kind][0] == "CausalLM" else transformers.AutoModel
    theirs, again = (auto.from_pretrained(path, dtype=torch.float32).eval() for path in (folder, tmp_path / "out"))
    ids = torch.tensor([[5, 9, 40, 7, 3, 12, 60, 2]])
    with torch.no_grad():
        torch.testing.assert_close(again(ids)[0], theirs(ids)[0], atol=1e-6, rtol=0)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "The cat's\tmat  [SEP] naïve 中 <s>"
    assert words.encode(text, add_special_tokens=False) == Tokenizer.load(folder).encode(text)


def test_an_imported_model_has_a_name_an_origin_and_no_second_name(store: str, shelf: Store, tmp_path: Path) -> None:
    folder = foreign(tmp_path / "anna", "bert")
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# Anna\n", encoding="utf-8")
    model = import_model.fn(shelf, str(folder))
    counts = ImportedCounts.of(shelf, model)
    assert (counts.name, counts.address, counts.licence) == ("anna", str(folder), "apache-2.0")
    assert [line.split()[1] for line in counts.files] == ["config.json", "model.safetensors"]
    assert import_model.fn(shelf, str(folder)) == model
    with pytest.raises(InputError, match=rf"^--name bella: found {model.short} imported as anna$"):
        import_model.fn(shelf, str(folder), "bella")
    with pytest.raises(InputError, match=r"^--name latest: expected letters"):
        import_model.fn(shelf, str(folder), "latest")
    other = foreign(tmp_path / "elsewhere" / "anna", "electra")
    with pytest.raises(InputError, match=r"^--name anna: found another model of this name in "):
        import_model.fn(shelf, str(other), "anna")
    second = ImportedCounts.of(shelf, import_model.fn(shelf, str(other))).name
    assert second.startswith("anna-")
    assert any_model(shelf, "anna") == any_model(shelf, model.url) == any_model(shelf, model.short) == model
    assert [line.split()[1:3] for line in checkpoints_of(shelf)[1:]].count(["imported", "anna,"]) == 1


@pytest.mark.parametrize(
    ("head", "licence"),
    [
        ("license: mit\n", "mit"),
        ("license:\n- cc-by-4.0\n- mit\n", "cc-by-4.0"),
        ("license:\nlanguage: en\n", ""),
        ("license: 'other'  # see below\n", "other"),
    ],
)
def test_the_licence_is_the_cards(tmp_path: Path, head: str, licence: str) -> None:
    store = Store(str(tmp_path / "store"))
    folder = foreign(tmp_path / "anna", "bert")
    (folder / "README.md").write_text(f"\ufeff---\n{head}---\n# Anna\n", encoding="utf-8")
    assert ImportedCounts.of(store, import_model.fn(store, str(folder))).licence == licence


def test_a_folder_that_is_called_as_a_model_is_meant_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    anna, other = import_model.fn(store, str(foreign(tmp_path / "anna", "bert"))), foreign(tmp_path / "other", "gpt2")
    other.rename(tmp_path / "latest")
    (tmp_path / "anna").rename(tmp_path / "former")
    foreign(tmp_path / "anna", "electra")
    assert pretrained_model(store, "latest") == anna  # none was pre-trained here
    assert pretrained_model(store, "anna") == anna == pretrained_model(store, "former")
    assert checkpoint_label(store, pretrained_model(store, "./latest")).split()[2] == "model-latest,"
    monkeypatch.chdir(tmp_path / "former")
    assert import_model.fn(store, ".") == anna


def test_what_lies_beside_a_tokenizer_stays_with_its_model(tmp_path: Path) -> None:
    """Two models with one vocabulary, and a template for chats each."""
    store = Store(str(tmp_path / "store"))
    models = {}
    for name in ("anna", "bella"):
        folder = foreign(tmp_path / name, "llama" if name == "anna" else "qwen2")
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": name}))
        models[name] = import_model.fn(store, str(folder))
    for name, model in models.items():
        export(store, model.short, "hugging-face", str(tmp_path / f"out-{name}"))
        assert json.loads((tmp_path / f"out-{name}" / "tokenizer_config.json").read_text())["chat_template"] == name
        config = json.loads((tmp_path / f"out-{name}" / "config.json").read_text())
        assert config["eos_token_id"] == config["bos_token_id"] == 0


@pytest.mark.parametrize("normalizer", ["Lowercase", "NFKC"])
def test_a_gpt2_leaves_with_the_tokenizer_that_it_came_with(tmp_path: Path, normalizer: str) -> None:
    store = Store(str(tmp_path / "store"))
    folder = foreign(tmp_path / "anna", "gpt2")
    document = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**document, "normalizer": {"type": normalizer}}))
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    export(store, import_model.fn(store, str(folder)).short, "hugging-face", str(tmp_path / "out"))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in ("The CAT", "\ufb01sh \u2460"):
        assert theirs.encode(text, add_special_tokens=False) == Tokenizer.load(folder).encode(text)
    assert "license: mit\n" in (tmp_path / "out" / "README.md").read_text()


def test_what_is_no_model_is_refused_in_one_line(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["import", str(tmp_path / "empty"), "--store", store]) == 2
    assert "found no model, expected a folder with config.json and model.safetensors or" in capsys.readouterr().err
    assert main(["finetune", "rte", "--checkpoint", str(tmp_path / "empty"), "--store", store]) == 2
    assert "found no model there, expected a folder with config.json and" in capsys.readouterr().err
    assert main(["pipeline", "--checkpoint", "anna", "--family", "bert", "--store", store]) == 2
    expected = "--family: nothing is pre-trained with --checkpoint; expected no such option"
    assert expected in capsys.readouterr().err


def test_a_repository_of_the_hub_is_imported_with_its_commit(tmp_path: Path) -> None:
    foreign(tmp_path / "hub" / "anna" / "tiny", "bert")
    store = str(tmp_path / "store")
    with hub_server(tmp_path / "hub") as endpoint:
        environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home")}
        tries = (("tiny@v2", 0, "checkpoint tiny"), ("none", 2, "hf://anna/none: found no model"))
        for name, code, said in (*tries, tries[0]):
            command = [sys.executable, "-m", "flows.cli", "import", f"hf://anna/{name}", "--store", store]
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert (ended.returncode, said in ended.stderr) == (code, True), ended.stderr
            if code == 0:  # the commit is in the store now, and its weights are not asked for again
                (tmp_path / "hub" / "anna" / "tiny" / "model.safetensors").write_bytes(b"")
    counts = ImportedCounts.of(Store(store), pretrained_model(Store(store), "tiny"))
    assert (counts.address, counts.revision) == ("hf://anna/tiny@v2", "0" * 40)


def test_the_import_command_prints_the_address_and_what_may_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "store")
    assert main(["import", str(foreign(tmp_path / "carla", "gpt2")), "--name", "clara", "--store", store]) == 0
    out, err = capsys.readouterr()
    model = pretrained_model(Store(store), "clara")
    assert out.strip() == model.url
    assert "gptmill finetune TASK --checkpoint clara" in err
    folder, words = model_files(model)
    assert (folder / "model.safetensors").is_file()
    assert Tokenizer.load(words).n_vocab > 100
