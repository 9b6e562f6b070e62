"""Our models in other programs: under lm-evaluation-harness, beside plain twins; as ONNX, in any batch, in int8."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from gptcore.base.errors import InputError
from gptcore.config import LSTMConfig, ModelConfig
from gptcore.evaluation import exported
from gptcore.evaluation.exported import INT8, MODEL, TOLERANCE, write_onnx
from gptcore.evaluation.harness import HarnessModel
from gptcore.evaluation.likelihood import NetworkLikelihood
from gptcore.evaluation.predict import TaskModel
from gptcore.models import incremental
from gptcore.models.classifier import ClassificationModel, Head
from gptcore.models.network import build_model
from gptcore.models.onnx import OnnxClassifier, export_onnx
from gptcore.models.transformer import GPT
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_rows import read_own_rows
from gptcore.nlu.registry import task_spec
from gptcore.text.bpe import WordTokenizer
from gptcore.text.byte_bpe import ByteTokenizer
from gptcore.text.tokenizer import Tokenizer
from tests.expected import expected as table_of
from tests.gptcore.tiny_glue import save_model, tokenizer
from tests.gptcore.tiny_tasks import encoded, random_ngrams

TEXT = "the cat sat on the mat . is it a cat or a dog ? yes no the dog ran"
TASK = "\n".join(table_of(__file__, "TASK"))


class Request:
    """What the harness hands over: its arguments are all that counts."""

    def __init__(self, *args: Any) -> None:
        self.args = args


Folders = tuple[Path, Path, GPT, Tokenizer]


@pytest.fixture(params=["byte-level", "words"])
def folders(request: pytest.FixtureRequest, tmp_path: Path) -> Folders:
    """The folders of a random model and of its tokenizer, and the two."""
    kind = ByteTokenizer if request.param == "byte-level" else WordTokenizer
    tokenizer = kind.train([TEXT] * 3, 40)
    torch.manual_seed(1)
    shape = ModelConfig(n_vocab=tokenizer.n_vocab, n_ctx=32, n_layer=2, n_head=2, n_embd=16, n_inner=32, init_std=0.4)
    gpt = GPT(shape).eval()
    gpt.save(tmp_path / "model")
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    return tmp_path / "model", tmp_path / "tokenizer", gpt, tokenizer


@pytest.fixture
def model(folders: Folders) -> HarnessModel:
    return HarnessModel(*folders[:2])


def start(tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode(".") if tokenizer.end_of_text is None else [tokenizer.end_of_text]


def plain(gpt: GPT, context: list[int], continuation: list[int]) -> tuple[float, bool]:
    """Token by token."""
    total, greedy, ids = 0.0, True, list(context)
    for token in continuation:
        with torch.no_grad():
            logits = gpt(torch.tensor([ids]))[0, -1].double()
        total += torch.log_softmax(logits, -1)[token].item()
        greedy &= int(logits.argmax()) == token
        ids.append(token)
    return total, greedy


def test_each_kind_of_request_against_its_twin(folders: Folders, model: HarnessModel) -> None:
    _, _, gpt, tokenizer = folders
    pairs = table_of(__file__, "test_each_kind_of_request_against_its_twin")
    found = model.loglikelihood([Request(*pair) for pair in pairs])
    for (context, continuation), (total, greedy) in zip(pairs, found, strict=True):
        before = tokenizer.encode(context.rstrip()) if context else start(tokenizer)
        after = tokenizer.encode(context + continuation)[len(before) if context else 0 :]
        if (context, continuation) == ("the ca", "t"):
            after = tokenizer.encode("t")  # "cat" is one piece: the two by themselves
        assert after
        expected = plain(gpt, before, after)
        assert (total, greedy) == (pytest.approx(expected[0], abs=1e-4), expected[1])
    (rolled,) = model.loglikelihood_rolling([Request("the cat sat")])
    assert rolled == pytest.approx(plain(gpt, start(tokenizer), tokenizer.encode("the cat sat"))[0], abs=1e-4)


@pytest.mark.parametrize("folders", ["words"], indirect=True)  # bytes are all read
def test_a_context_of_which_nothing_is_read_is_none(folders: Folders, model: HarnessModel) -> None:
    _, _, gpt, tokenizer = folders
    unread = "\x01"  # a control character, which cleaning takes out
    assert tokenizer.encode(unread) == []
    asked = [Request(context, "yes or no") for context in (unread, "")]
    assert model.loglikelihood(asked)[0] == model.loglikelihood(asked)[1]
    whole = plain(gpt, start(tokenizer), tokenizer.encode("yes or no"))
    assert model.loglikelihood(asked)[0][0] == pytest.approx(whole[0], abs=1e-4)


def test_a_long_text_is_scored_in_windows_of_which_the_last_is_full_too(folders: Folders, model: HarnessModel) -> None:
    _, _, gpt, tokenizer = folders
    texts, n_ctx = ["the cat sat on the mat . " * 12, "", "who sat ?"], gpt.config.n_ctx
    ids = tokenizer.encode(texts[0])
    assert len(ids) % n_ctx > 1
    expected = plain(gpt, start(tokenizer), ids[:n_ctx])[0]
    for begin in range(n_ctx, len(ids), n_ctx):
        some = ids[begin : begin + n_ctx]
        end = begin + len(some)
        expected += plain(gpt, ids[end - n_ctx - 1 : begin], some)[0]
    rolled = model.loglikelihood_rolling([Request(text) for text in texts])
    assert rolled == [
        pytest.approx(expected, abs=1e-3),
        0.0,
        pytest.approx(plain(gpt, start(tokenizer), tokenizer.encode(texts[2]))[0], abs=1e-4),
    ]


def test_greedy_decoding_is_known_as_such(folders: Folders) -> None:
    _, _, gpt, tokenizer = folders
    ids = tokenizer.encode("the cat")
    best = []
    for _ in range(3):
        with torch.no_grad():
            best.append(int(gpt(torch.tensor([ids + best]))[0, -1].argmax()))
    other = [*best[:2], (best[2] + 1) % tokenizer.n_vocab]
    likelihood = NetworkLikelihood(gpt)
    sums, greedy = likelihood.greedy_continuations([(ids, best), (ids, other), (ids, [])])
    assert greedy.tolist() == [True, False, True]
    assert sums == pytest.approx(likelihood.continuations([(ids, best), (ids, other), (ids, [])])[0])


def test_a_request_goes_through_the_network_once(model: HarnessModel, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, real = 0, GPT.hidden

    def counted(gpt: GPT, tokens: torch.Tensor) -> torch.Tensor:
        nonlocal passes
        passes += len(tokens)
        return real(gpt, tokens)

    monkeypatch.setattr(GPT, "hidden", counted)
    model.loglikelihood([Request("the cat", f" {word}") for word in ("sat", "ran", "yes", "no", "dog")])
    assert passes == 5


def test_generation_ends_where_every_text_has_its_stop(
    folders: Folders, model: HarnessModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow twin writes to the end and cuts; the passes are those up to the stop that comes last."""
    tokenizer, n = folders[3], 14
    contexts = ("the cat", "is it a dog", "who ran")
    whole = [model.generate_until([Request(text, {"max_gen_toks": n})])[0] for text in contexts]
    stops = [text[len(text) // 3 :][:2] for text in whole]
    steps: list[int] = []
    real = incremental.step

    def counted(gpt: GPT, tokens: torch.Tensor, *more: Any) -> torch.Tensor:
        steps.append(tokens.shape[1])
        return real(gpt, tokens, *more)

    monkeypatch.setattr(incremental, "step", counted)
    settings = {"until": stops, "max_gen_toks": n}
    found = model.generate_until([Request(text, settings) for text in contexts])
    spelt = stops + ([tokenizer.decode(tokenizer.encode(s)) for s in stops] if tokenizer.end_of_text is None else [])
    cuts = [min(text.find(stop) for stop in spelt if stop and stop in text) for text in whole]
    assert found == [text[:cut] for text, cut in zip(whole, cuts, strict=True)]
    assert len(steps) < n


def test_texts_end_at_their_stops(folders: Folders, model: HarnessModel) -> None:
    _, _, gpt, tokenizer = folders
    (whole,) = model.generate_until([Request("the cat", {"max_gen_toks": 8})])
    stop = whole[len(whole) // 2]
    texts = model.generate_until(
        [Request("the cat", {"until": [stop], "max_gen_toks": 8}), Request("the cat", {"max_gen_toks": 8})]
    )
    assert texts == [whole[: whole.index(stop)], whole]
    (drawn,) = model.generate_until([Request("the cat", {"max_gen_toks": 8, "do_sample": True, "temperature": 5.0})])
    assert drawn != whole
    ids = tokenizer.encode("the cat")
    for _ in range(8):
        with torch.no_grad():
            ids.append(int(gpt(torch.tensor([ids]))[0, -1, : tokenizer.n_vocab].argmax()))
    assert tokenizer.decode(ids[-8:]).startswith(whole)  # nothing goes in front of a prompt
    (long,) = model.generate_until([Request("the cat sat on the mat . " * 9, {"max_gen_toks": 500})])
    assert len(tokenizer.encode(long)) <= 20


def test_a_local_task_file_from_end_to_end(
    folders: Folders, model: HarnessModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import lm_eval
    from lm_eval.tasks import TaskManager

    rows = [{"question": f"is it a {name} ?", "right": n % 2} for n, name in enumerate(("cat", "dog", "mat", "ran"))]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "cats.yaml").write_text(TASK.format(data=data))
    _, _, gpt, tokenizer = folders
    manager = TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False)
    result = lm_eval.simple_evaluate(model=model, tasks=["cats"], task_manager=manager, bootstrap_iters=0)
    right = []
    for row in rows:
        before = tokenizer.encode(str(row["question"]))
        scores = [
            plain(gpt, before, tokenizer.encode(f"{row['question']} {answer}")[len(before) :])[0]
            for answer in ("yes", "no")
        ]
        right.append(int(np.argmax(scores)) == row["right"])
    assert result["results"]["cats"]["acc,none"] == pytest.approx(np.mean(right))


def test_a_tokenizer_of_another_model_is_refused(folders: Folders, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ByteTokenizer.train([TEXT], 3).save(tmp_path / "other")
    with pytest.raises(InputError, match="expected the tokenizer's"):
        HarnessModel(folders[0], tmp_path / "other")


def test_an_answer_without_room_is_refused(model: HarnessModel) -> None:
    """Cut, it would be likelier than a shorter one."""
    with pytest.raises(InputError, match=r"tokens, expected 32 or fewer"):
        model.loglikelihood([Request("the cat", " the dog ran" * 40)])


def test_stops_are_found_as_a_vocabulary_of_words_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    words = WordTokenizer.train(["yes . \n who ? the dog : ran"] * 3, 40)
    monkeypatch.setattr("gptcore.evaluation.harness.Tokenizer.load", lambda _: words)
    monkeypatch.setattr("gptcore.evaluation.harness.generate_ids", lambda *_, **__: [words.encode("Yes.\nWho: ran?")])
    shape = ModelConfig(n_vocab=words.n_vocab, n_ctx=32, n_layer=1, n_head=2, n_embd=16, n_inner=32)
    monkeypatch.setattr("gptcore.evaluation.harness.load_model", lambda _: GPT(shape))
    model = HarnessModel("m", "t")
    for stop, expected in (("\n\n", "yes ."), ("Who:", "yes .\n"), ("never", "yes .\nwho : ran ?")):
        assert model.generate_until([Request("the dog", {"until": [stop]})]) == [expected]


@pytest.mark.parametrize("name", ["max_gen_toks", "max_new_tokens", "max_tokens"])
def test_a_length_has_several_names(model: HarnessModel, name: str) -> None:
    short, long = (model.generate_until([Request("the cat", {name: length})])[0] for length in (1, 12))
    assert len(short) < len(long)


WORDS = tokenizer()


def save(task: str, folder: Path, network: torch.nn.Module) -> Path:
    spec = task_spec(task)
    model = ClassificationModel(network, Head(spec.form, form_of(spec).n_outputs(spec), 0.1))
    model.save(folder, {"task": task, "labels": list(spec.labels), "tokenizer_digest": WORDS.digest})
    return folder


@pytest.mark.parametrize(
    ("form", "n_outputs", "n_sequences", "released"), [("pair", 2, 2, True), ("choices", 1, 4, False)]
)
def test_logits_are_the_models_for_any_rows_sequences_and_lengths(form, n_outputs, n_sequences, released, tmp_path):
    torch.manual_seed(1)
    sizes = {"n_vocab": 50, "n_ctx": 16, "n_layer": 2, "n_head": 2, "n_embd": 8, "n_inner": 32, "n_special": 3}
    config = ModelConfig(**sizes, original=released, smeared_keys=not released, init_std=0.5)
    model = ClassificationModel(GPT(config), Head(form, n_outputs, 0.1, None if released else "mean")).eval()
    if not released:
        model.ngrams = random_ngrams(2, n_outputs, 53, delimiter=7)
    export_onnx(model, tmp_path / MODEL)
    exported_model = OnnxClassifier(tmp_path / MODEL, threads=1)
    for rows, length in ((1, 1), (1, 16), (7, 3)):
        tokens = torch.randint(0, 53, (rows, n_sequences, length))
        ends = torch.randint(0, length, (rows, n_sequences))
        with torch.inference_mode():
            expected, _ = model(tokens, ends)
        found, _ = exported_model(tokens, ends)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, atol=TOLERANCE / 10, rtol=0)


def test_the_folder_is_enough_to_answer_rows_as_the_model_does(tmp_path):
    """Without torch: config.json, the tokenizer and onnxruntime."""
    model = save_model("sst2", WORDS, tmp_path / "model")
    report = write_onnx(model, WORDS, encoded(tmp_path, "sst2", words=WORDS), tmp_path / "out", int8=True)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {MODEL, INT8, "config.json", "tokenizer", "comparison.json"}
    assert report == json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert report["rows"] == 20
    assert report[MODEL]["largest_difference"] <= TOLERANCE
    assert report[MODEL]["score"] == report["score"]
    assert report[MODEL]["same_answers"] == 1
    assert report[INT8]["largest_difference"] > report[MODEL]["largest_difference"]  # it is another file
    assert report[INT8]["bytes"] == (tmp_path / "out" / INT8).stat().st_size

    config = json.loads((tmp_path / "out" / "config.json").read_text())
    words = Tokenizer.load(str(tmp_path / "out" / "tokenizer"))
    n_vocab = config["model"]["n_vocab"]
    row = [n_vocab, *words.encode("the cat sat"), n_vocab + 2]
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / MODEL), providers=["CPUExecutionProvider"])
    given = {"tokens": np.asarray([[row]]), "clf_position": np.asarray([[len(row) - 1]])}
    (logits,) = session.run(None, given)
    answers = TaskModel(model, WORDS)
    (expected,) = answers.logits(read_own_rows(answers.spec, [b'{"sentence": "the cat sat"}']))
    np.testing.assert_allclose(logits[0], expected, atol=TOLERANCE)


def test_an_export_that_differs_or_cannot_be_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    dataset = encoded(tmp_path, "sst2", words=WORDS)
    out = tmp_path / "out"
    recurrent = build_model(LSTMConfig(n_vocab=WORDS.n_vocab, n_special=3, n_ctx=16, n_embd=8, n_units=8))
    with pytest.raises(InputError, match="found a model of the kind LSTM, expected one of GPT-1, "):
        write_onnx(save("sst2", tmp_path / "lstm", recurrent), WORDS, dataset, out)
    model = save_model("sst2", WORDS, tmp_path / "model")
    with pytest.raises(InputError, match="expected rte"):
        write_onnx(save_model("rte", WORDS, tmp_path / "other"), WORDS, dataset, out)
    find = util.find_spec
    with monkeypatch.context() as patch:
        patch.setattr("gptcore.models.onnx.find_spec", lambda name: None if name == "onnxruntime" else find(name))
        with pytest.raises(InputError, match=r"found no package onnxruntime, expected pip install 'gptmill\[onnx\]'"):
            write_onnx(model, WORDS, dataset, out)

    save("sst2", tmp_path / "wrong", ClassificationModel.load(model)[0].gpt)  # another linear layer
    export_onnx(ClassificationModel.load(tmp_path / "wrong")[0], tmp_path / "wrong.onnx")
    monkeypatch.setattr(exported, "export_onnx", lambda _, path: copyfile(tmp_path / "wrong.onnx", path))
    with pytest.raises(InputError, match=r"logits differ by [\d.]+, expected at most 0.0001"):
        write_onnx(model, WORDS, dataset, out)
    assert not out.exists()
