"""Folders of Hugging Face's kind of BERT, ALBERT and ELECTRA: read, written, bit for bit, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from gptcore import Tokenizer, load_model
from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig, network_config
from gptcore.families import FAMILIES
from gptcore.models.classifier import EncoderClassificationModel, Head
from gptcore.models.encoder import Encoder, without_heads
from gptcore.models.files.export import export_classifier, export_hugging_face
from gptcore.nlu import task_spec
from gptcore.nlu.forms import form_of
from gptcore.papers.electra.config import generator_config
from gptcore.text.bpe import WordTokenizer
from gptcore.text.sentence_piece import SentencePieceTokenizer
from gptcore.text.wordpiece import WordPieceTokenizer
from tests.gptcore.test_encoder import SMALL, THEIRS, T, V, called, filled, sequences
from tests.gptcore.tiny_tasks import random_ngrams, task_of

TEXTS = ["The cat sat on the mat, and the dog ran.", "A dog sat; the cats ran to the mats!"] * 3
PIECES = WordPieceTokenizer.train(TEXTS, 20)
SENTENCE_PIECES = SentencePieceTokenizer.train(TEXTS, 10)
SHAPE: dict[str, Any] = {"n_ctx": 16, "n_layer": 3, "n_head": 2, "n_embd": 16, "n_inner": 24}
BERT = EncoderConfig(n_vocab=PIECES.n_vocab, **SHAPE)
ALBERT, ELECTRA, DISTILBERT = (
    network_config({"n_vocab": words.n_vocab, **SHAPE, **FAMILIES[name].settings["model"], "family": name, **narrow})
    for name, words, narrow in (
        ("albert", SENTENCE_PIECES, {"n_embd_words": 8}),
        ("electra", PIECES, {"n_embd_words": 8}),
        ("distilbert", PIECES, {}),
    )
)
MADE: dict[str, tuple[EncoderConfig, Tokenizer, Any]] = {
    "BERT": (BERT, PIECES, transformers.BertForPreTraining),
    "BERT without pairs": (dataclasses.replace(BERT, pooler=False, pair=False), PIECES, transformers.BertForMaskedLM),
    "ALBERT": (ALBERT, SENTENCE_PIECES, transformers.AlbertForPreTraining),
    "DistilBERT": (DISTILBERT, PIECES, transformers.DistilBertForMaskedLM),
    "discriminator": (ELECTRA, PIECES, transformers.ElectraForPreTraining),
    "generator": (generator_config(ELECTRA, 0.5), PIECES, transformers.ElectraForMaskedLM),
}


@pytest.mark.parametrize("kind", THEIRS)
def test_a_folder_of_theirs_there_and_back_has_the_same_bits(kind: str, tmp_path: Path) -> None:
    theirs = filled(THEIRS[kind]())
    theirs.save_pretrained(tmp_path / "theirs")
    model = load_model(str(tmp_path / "theirs"))
    model.save(tmp_path / "ours")
    again = load_model(str(tmp_path / "ours"))
    assert again.config == model.config
    given = sequences(V, T)
    assert torch.equal(again(**given), model(**given))
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("kind", MADE)
def test_an_exported_folder_is_transformers_own(kind: str, tmp_path: Path) -> None:
    config, tokenizer, architecture = MADE[kind]
    model = Encoder(config, torch.Generator().manual_seed(2)).eval()
    export_hugging_face(model, tokenizer, tmp_path)
    theirs, said = architecture.from_pretrained(tmp_path, output_loading_info=True)
    assert not said["missing_keys"]
    assert not said["unexpected_keys"]
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [architecture.__name__]
    theirs.eval()
    given = sequences(config.n_vocab, T)
    found = called(theirs, given)
    expected = found.get("prediction_logits", found.get("logits"))
    real = given["mask"].bool()
    torch.testing.assert_close(model(**given)[real], expected[real], rtol=1e-5, atol=1e-6)
    back = load_model(str(tmp_path))
    assert back.config == config
    assert all(torch.equal(a, b) for a, b in zip(back.parameters(), model.parameters(), strict=True))
    theirs.save_pretrained(tmp_path / "again")
    stored, again = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "again"))
    assert all(torch.equal(again[name], tensor) for name, tensor in stored.items())
    assert Tokenizer.load(tmp_path).digest == tokenizer.digest


CLASSIFIERS = [
    *(
        (family, form)
        for family in ("bert", "albert", "distilbert")
        for form in ("single", "pair", "choices", "span", "tags")
    ),
    *(("electra", form) for form in ("span", "tags")),
]


@pytest.mark.parametrize(("family", "form"), CLASSIFIERS)
def test_an_exported_classifier_has_the_logits_of_transformers_own(family: str, form: str, tmp_path: Path) -> None:
    made = {"bert": (BERT, PIECES), "albert": (ALBERT, SENTENCE_PIECES), "electra": (ELECTRA, PIECES)}
    made["distilbert"] = (DISTILBERT, PIECES)
    config, tokenizer = made[family]
    labels = {"span": ("answer",), "choices": ("0", "1")}.get(form, ("yes", "no", "maybe"))
    n_outputs = {"span": 2, "choices": 1}.get(form, 3)
    draws = torch.Generator().manual_seed(3)
    network = Encoder(without_heads(dataclasses.replace(config, init_std=0.2)), draws)
    model = EncoderClassificationModel(network, Head(form, n_outputs, 0.1), draws).eval()
    export_classifier(model, task_of(form, labels), {}, tokenizer, tmp_path)
    (name,) = json.loads((tmp_path / "config.json").read_text())["architectures"]
    theirs, said = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not said["missing_keys"]
    assert not said["unexpected_keys"]
    given = sequences(config.n_vocab, T)
    if form == "choices":
        given = {key: torch.stack([value, value.flip(0)], 1) for key, value in given.items()}  # (B, C, T)
    else:
        given = {key: value[:, None] for key, value in given.items()}  # (B, 1, T)
    marks = {"segments": given["segments"], "mask": given["mask"].bool()}
    ours, _ = model(given["tokens"], torch.zeros(1), **marks)
    asked = given if form == "choices" else {key: value[:, 0] for key, value in given.items()}
    found = called(theirs.eval(), asked)
    real = asked["mask"].bool()
    if form == "span":
        expected = torch.stack([found.start_logits, found.end_logits], -1)[real]
    else:
        expected = found.logits[real] if form == "tags" else found.logits
    torch.testing.assert_close(ours[real] if form in ("span", "tags") else ours, expected, rtol=1e-5, atol=1e-6)
    if form in ("single", "pair", "tags"):
        assert theirs.config.id2label == dict(enumerate(labels))


@pytest.mark.parametrize(
    ("config", "form", "parts"),
    [
        (ELECTRA, "pair", {}),
        (dataclasses.replace(BERT, pooler=False, pair=False), "single", {}),
        (BERT, "single", {"ngrams": random_ngrams(2, 2, PIECES.n_vocab)}),
        (BERT, "single", {"pooling": "mean"}),
    ],
)
def test_a_classifier_that_transformers_has_no_class_for_brings_its_own(
    config: EncoderConfig, form: str, parts: dict[str, Any], tmp_path: Path
) -> None:
    model = EncoderClassificationModel(Encoder(without_heads(config)), Head(form, 2, 0.1))
    for name, part in parts.items():
        setattr(model, name, part)
    export_classifier(model, task_of(form, ("yes", "no")), {}, PIECES, tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    assert said["architectures"] == ["GptmillForSequenceClassification"]
    assert said["network"]["trunk"]["model_type"] == config.family


def test_a_graded_label_has_a_class_for_each_whole_number() -> None:
    assert form_of(task_spec("stsb")).class_names(task_spec("stsb")) == ("0", "1", "2", "3", "4", "5")
    assert form_of(task_spec("rte")).class_names(task_spec("rte")) == task_spec("rte").labels


def test_transformers_reads_the_words_of_an_exported_bert(tmp_path: Path) -> None:
    export_hugging_face(Encoder(BERT), PIECES, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert theirs.encode(text, add_special_tokens=False) == PIECES.encode(text)
    assert (theirs.cls_token_id, theirs.pad_token_id) == (PIECES.specials.cls, PIECES.specials.pad)


def test_a_folder_without_heads_is_read_and_says_what_it_lacks(tmp_path: Path) -> None:
    theirs = filled(transformers.BertModel(transformers.BertConfig(**{**SMALL, "num_hidden_layers": 2})))
    theirs.save_pretrained(tmp_path)
    model = load_model(str(tmp_path))
    assert isinstance(model, Encoder)
    given = sequences(V, T)
    found = called(theirs, given)
    states = model.encode(**given)
    real = given["mask"].bool()
    torch.testing.assert_close(states[real], found.last_hidden_state[real], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.summary(states), found.pooler_output, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="has no head for masked words; expected a folder that holds one"):
        model(**given)


def test_norms_under_their_older_names_are_read(tmp_path: Path) -> None:
    """Folders converted from the original release call a norm's gain gamma and its bias beta."""
    theirs = filled(THEIRS["BERT"]())
    theirs.save_pretrained(tmp_path)
    expected = load_model(str(tmp_path))
    tensors = load_file(tmp_path / "model.safetensors")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    assert renamed.keys() != tensors.keys()
    save_file(renamed, tmp_path / "model.safetensors")
    assert all(
        torch.equal(a, b) for a, b in zip(load_model(str(tmp_path)).parameters(), expected.parameters(), strict=True)
    )


def edited(changes: dict[str, Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return edit


def without(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        del tensors[name]
        save_file(tensors, folder / "model.safetensors")

    return edit


def untied(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + 1
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (edited({"is_decoder": True}), "config.json: is_decoder = True, expected False"),
        (edited({"position_embedding_type": "relative_key"}), "position_embedding_type = 'relative_key', expected"),
        (edited({"hidden_size": "wide"}), "hidden_size: found 'wide', expected int"),
        (edited({"num_hidden_layers": 9}), "no tensor encoder.layer.4.attention.self.query.weight"),
        (edited({"type_vocab_size": 3}), r"embeddings.segments.weight has the shape \[2, 24\], expected \[3, 24\]"),
        (
            without("bert.encoder.layer.1.output.dense.bias"),
            "model.safetensors: no tensor encoder.layer.1.output.dense.bias",
        ),
        (untied, "cls.predictions.decoder.weight: differs from embeddings.word_embeddings.weight, expected the same"),
    ],
)
def test_a_folder_that_is_something_else_is_refused(edit: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    filled(THEIRS["BERT"]()).save_pretrained(tmp_path)
    edit(tmp_path)
    with pytest.raises(InputError, match=message):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("config", "tokenizer", "message"),
    [
        (dataclasses.replace(ELECTRA, n_embd_words=16), PIECES, "model.n_embd_words = 16, expected None where"),
        (BERT, SENTENCE_PIECES, "tokenizer: a SentencePiece one, expected a WordPiece one for BERT"),
        (BERT, WordTokenizer.train(["a b a b"], 1), "tokenizer: a word one, expected a WordPiece one for BERT"),
        (EncoderConfig(n_vocab=9, **SHAPE), PIECES, "model: found n_vocab = 9, expected the tokenizer's "),
        (dataclasses.replace(BERT, n_embd_words=4), PIECES, "model.n_embd_words = 4, expected None"),
        (
            dataclasses.replace(ALBERT, n_embd_words=None),
            SENTENCE_PIECES,
            "model.n_embd_words = None, expected a width",
        ),
    ],
)
def test_what_a_folder_cannot_hold_is_not_written(
    config: EncoderConfig, tokenizer: Tokenizer, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        export_hugging_face(Encoder(config), tokenizer, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "setting", "fewer"),
    [("BERT", "num_hidden_layers", 2), ("DistilBERT", "n_layers", 2), ("ALBERT in groups", "num_hidden_groups", 1)],
)
def test_layers_that_the_settings_do_not_count_are_not_left_out(
    kind: str, setting: str, fewer: int, tmp_path: Path
) -> None:
    THEIRS[kind]().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, setting: fewer}))
    with pytest.raises(InputError, match=r"but model.safetensors has .*; expected no such tensor"):
        load_model(str(tmp_path))
