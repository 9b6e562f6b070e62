"""A family of encoders through the same chain: pre-training, leaderboard, cards, registry, answers to own rows."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from flows import inference
from flows.cli.models import zero_shot
from flows.finetune import finetune, finetune_all
from flows.forms.parameters import FinetuneAllParameters, FinetuneParameters
from gptcore.base.errors import InputError
from gptcore.base.files import read_json
from gptcore.text.tokenizer import Specials
from tasks.report.leaderboard import Leaderboard
from tasks.store.references import checkpoint_label, pretrained_model
from tasks.store.store import Store
from tasks.tracking.pyfunc import TaskPredictor
from tests.flows.world import run_pipeline, with_blimp

TASKS = ["rte", "storycloze", "squad2", "conll2003"]  # a pair, choices, a span, tags

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def board(world: tuple[str, str], store: str, prefect_server: Path) -> Leaderboard:
    return run_pipeline(world, store, family="bert", tasks=TASKS)


def test_every_form_has_its_cell_in_the_familys_row(board: Leaderboard) -> None:
    row = next(row for row in board.rows if row.name.startswith("BERT pre-trained"))
    assert set(row.percent) == set(TASKS)
    assert board.own_tasks == ["conll2003", "squad2"]
    assert row.average(list(row.per_task)) == pytest.approx((row.percent["rte"] + row.percent["storycloze"]) / 2)
    text = board.render()
    assert "beyond the twelve, in no average: conll2003 (F1 of entities), squad2 (F1 of words)" in text
    assert {"best constant", "bag of words"} <= {row.name.rpartition(" ")[0] or row.name for row in board.rows}


def test_what_was_trained_is_an_encoder_and_says_so(board: Leaderboard, shelf: Store) -> None:
    assert " BERT " in checkpoint_label(shelf, pretrained_model(shelf, "latest"))
    tuned = shelf.list("finetune")
    assert len(tuned) == len(TASKS)
    for artifact in tuned:
        card = (shelf.local(artifact) / "model/README.md").read_text(encoding="utf-8")
        assert "# BERT, fine-tuned on " in card
        assert "one linear layer" in card
        assert ("the state of each position" in card) == ("squad2" in card or "conll2003" in card)
        assert "L3" not in card
        config = read_json(shelf.local(artifact) / "model/config.json")
        assert (config["model"]["family"], config["model"]["words"], config["model"]["pair"]) == ("bert", False, False)
        settings = shelf.manifest(artifact)["config"]["finetune"]
        assert (settings["lm_coef"], settings["warmup"]) == (0.0, 0.1)
    for dataset in shelf.list("dataset"):
        assert set(read_json(shelf.local(dataset, "meta.json"))["specials"]) == {*Specials._fields}


def test_own_rows_of_every_form_are_answered(board: Leaderboard, store: str) -> None:
    rows = {
        "rte": {"premise": "A cat sleeps.", "hypothesis": "A cat is awake."},
        "storycloze": {"document": "Ann went out. It rained.", "answers": ["She got wet.", "She slept."]},
    }
    for task, row in rows.items():
        lines = [json.dumps(row).encode()] * 2
        first, second = inference.predict(Store(store), task, "best", lines)
        assert sum(first["probabilities"].values()) == pytest.approx(1.0, abs=1e-4)
        assert {**first, "line": 2} == second


def test_spans_and_tags_are_answered_from_rows_and_from_tables(board: Leaderboard, store: str) -> None:
    passage = "Anna went to the mill. Bert saw Carl."
    asked = {"question": "Who went to the mill?", "context": passage}
    (found,) = inference.predict(Store(store), "squad2", "best", [json.dumps(asked).encode()])
    assert passage[found["start"] : found["end"]] == found["answer"]
    assert (found["answer"] == "") == (found["no_answer"] > found["threshold"])
    words = ["Anna", "went", "to", "Larkfield", "."]
    (tagged,) = inference.predict(Store(store), "conll2003", "best", [json.dumps({"words": words}).encode()])
    assert len(tagged["tags"]) == len(words)
    tuned = {Store(store).manifest(each)["config"]["task"]: each for each in Store(store).list("finetune")}
    table = TaskPredictor(tuned["conll2003"]).predict(pd.DataFrame([{"words": " ".join(words)}, {"words": "Bert"}]))
    assert table["tags"][0].split() == tagged["tags"]
    answers = TaskPredictor(tuned["squad2"]).predict(pd.DataFrame([asked]))
    assert answers.to_dict("records") == [{name: value for name, value in found.items() if name != "line"}]


def test_transformers_answers_a_row_as_the_exported_model_does(board: Leaderboard, store: str, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    shelf, out = Store(store), str(tmp_path / "out")
    tuned = next(each for each in shelf.list("finetune") if shelf.manifest(each)["config"]["task"] == "rte")
    assert any(
        path.endswith("model.safetensors") for path in inference.export(shelf, tuned.digest, "hugging-face", out)
    )
    row = {"premise": "Anna went to the mill.", "hypothesis": "Anna was at the mill."}
    (ours,) = inference.predict(shelf, "rte", tuned.digest, [json.dumps(row).encode()])
    model = AutoModelForSequenceClassification.from_pretrained(out).eval()
    given = AutoTokenizer.from_pretrained(out)(row["premise"], row["hypothesis"], return_tensors="pt")
    with torch.inference_mode():
        theirs = model(**given).logits.softmax(-1)[0].tolist()
    named = dict(zip(model.config.id2label.values(), theirs, strict=True))
    assert ours["probabilities"] == pytest.approx(named, abs=1e-4)
    assert ours["label"] == max(named, key=lambda label: named[label])


def test_a_task_whose_answers_are_places_is_refused_to_a_decoder(world: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="squad2: found GPT-1, which answers for a text as a whole"):
        run_pipeline(world, str(tmp_path), tasks=["squad2"])
    assert not Store(str(tmp_path)).list("corpus")


def test_what_only_decoders_can_is_refused_in_one_line(board: Leaderboard, world: tuple[str, str], store: str) -> None:
    tuned = Store(store).list("finetune")[0].digest
    with pytest.raises(InputError, match="found BERT, an encoder; expected a model that predicts the next token"):
        inference.perplexity(Store(store), tuned, [b"A text."])


def test_sentences_are_scored_by_pseudo_likelihood(
    board: Leaderboard, world: tuple[str, str], store: str, tmp_path: Path
) -> None:
    checkpoint = pretrained_model(Store(store), "latest").digest
    found = inference.perplexity(Store(store), checkpoint, [b"Anna went to the mill.\n", b"Bert slept.\n"])
    assert set(found) == {"pieces", "words", "pseudo_nats_per_piece", "pseudo_perplexity", "pseudo_word_perplexity"}
    assert (found["words"], found["pseudo_perplexity"] > 1) == (7, True)
    _, datasets = with_blimp(world, tmp_path / "data")
    scores = zero_shot(Store(store), "latest", datasets)
    assert {name.partition("/")[0] for name in scores} == {"blimp"}, "the heuristics ask for the next token"


def test_forms_fine_tune_an_encoder_with_its_familys_settings(
    board: Leaderboard, world: tuple[str, str], store: str
) -> None:
    """Without the auxiliary objective, which a form's default would have, and with its own warm-up."""

    before = {artifact.digest for artifact in Store(store).list("finetune")}
    given = {"checkpoint": "latest", "store": store, "datasets": world[1], "seeds": 1}
    one = FinetuneParameters(task="rte", epochs=1, batch_size=8, max_train_rows=16, **given)
    one.check()
    assert set(finetune(one).rows[0].per_task) == {"rte"}
    overrides = {"finetune": {"epochs": 1, "max_train_rows": 16, "max_eval_rows": 16}, "scratch": False}
    every = FinetuneAllParameters(tasks=["rte"], overrides=overrides, **given)
    every.check()
    assert set(finetune_all(every).rows[0].per_task) == {"rte"}
    made = [found for found in Store(store).list("finetune") if found.digest not in before]
    settings = [Store(store).manifest(found)["config"]["finetune"] for found in made]
    assert [(s["lm_coef"], s["warmup"]) for s in settings] == [(0.0, 0.1)] * 2


def test_an_encoder_without_pairs_of_sentences_has_no_zero_shot_score(
    board: Leaderboard, world: tuple[str, str], store: str
) -> None:
    with pytest.raises(InputError, match=r"found nothing that [0-9a-f]{12} can be scored on; expected BLiMP/"):
        zero_shot(Store(store), "latest", world[1])


def test_a_folder_of_transformers_is_read_as_what_it_is(board: Leaderboard, shelf: Store, tmp_path: Path) -> None:
    """Not without its head, and not with a vocabulary of another size."""
    tuned = next(each for each in shelf.list("finetune") if shelf.manifest(each)["config"]["task"] == "rte")
    folder, out = str(tmp_path / "rte"), str(tmp_path / "again")
    inference.export(shelf, tuned.short, "hugging-face", folder)
    with pytest.raises(InputError, match="found BertForSequenceClassification, whose head is not read"):
        inference.export(shelf, folder, "hugging-face", out, folder)
    assert not Path(out).exists()
    shorter = tmp_path / "shorter"
    shorter.mkdir()
    pieces = Path(folder, "vocab.txt").read_text(encoding="utf-8").splitlines()
    (shorter / "vocab.txt").write_text("\n".join(pieces[:-3]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"n_vocab = {len(pieces)}, expected the tokenizer's {len(pieces) - 3}$"):
        inference.perplexity(shelf, folder, [b"a cat"], str(shorter))
    config = Path(folder, "config.json")
    config.write_text(config.read_text(encoding="utf-8")[:200], encoding="utf-8")
    with pytest.raises(InputError, match=r"config.json: not JSON"):
        inference.perplexity(shelf, folder, [b"a cat"], folder)
