"""Models that transformers has no class for, as a process without this package reads their folders."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from gptcore import load_model
from gptcore.config import network_config
from gptcore.evaluation.predict import TaskModel
from gptcore.families import FAMILIES
from gptcore.models.classifier import ClassificationModel, Classifier, EncoderClassificationModel, Head
from gptcore.models.encoder import Encoder
from gptcore.models.files import export
from gptcore.models.files.encoders import EncoderLayout
from gptcore.models.files.export import export_classifier, export_hugging_face
from gptcore.models.files.layout import Layout
from gptcore.models.network import build_model
from gptcore.nlu import TaskSpec, task_spec
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_rows import read_own_rows
from gptcore.nlu.registry import recorded_task, task_settings
from gptcore.papers.gptbert.network import BothWays
from gptcore.text.bpe import WordTokenizer
from gptcore.text.byte_bpe import ByteTokenizer
from gptcore.text.sentence_piece import SentencePieceTokenizer
from gptcore.text.wordpiece import WordPieceTokenizer
from gptcore.training.decision import move_decision
from tests.gptcore.tiny_tasks import random_ngrams, task_of

TEXT = ["the old king and the new queen , 12 ! do n't stop . the cake is here ."] * 3
HOSTILE = [
    "The  OLD king,\n12 caf\u00e9s",
    "don't \u4e2d\u6587 ",
    "\t\r\n x",
    "na\u00efve \U0001f600!!",
    "a\u00adb",
]
WORDS = {
    "word": WordTokenizer.train(TEXT, 30),
    "bytes": ByteTokenizer.train(TEXT, 60),
    "pieces": WordPieceTokenizer.train(TEXT, 20),
    "sentences": SentencePieceTokenizer.train(TEXT, 10),
}
SHAPE: dict[str, Any] = {"n_ctx": 64, "n_layer": 4, "n_head": 2, "n_embd": 16, "n_inner": 24, "init_std": 0.3}
WORDS_ALONE: dict[str, Any] = {**SHAPE, "pair": False, "pooler": False}
BEST: dict[str, Any] = {**SHAPE, "n_inner": 64, "smeared_keys": True, "rotary": True}
PAIRS = [("the old king", "the queen is here !"), ("the cake", "the new cake stop and here"), ("king", "king")]


def network(family: str, vocabulary: str, **changes: Any) -> Any:
    """A network of a family with all weights random, gains and biases too."""
    settings = {**FAMILIES[family].settings.get("model", {}), **changes, "family": family}
    draws = torch.Generator().manual_seed(4)
    made = build_model(network_config({"n_vocab": WORDS[vocabulary].n_vocab, **settings}), draws)
    for parameter in made.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=draws) * 0.2)
    return made.eval()


@dataclasses.dataclass(frozen=True)
class Tuned:
    """A fine-tuned model of a kind, and how transformers is asked."""

    family: str
    words: str
    task: str
    settings: dict[str, Any]
    auto: str = "ForSequenceClassification"
    pooling: str | None = None
    ngrams: int = 0
    shift: float = 0.0
    several: bool = False
    native: bool = False
    """Whether what is below the heads is transformers' own, also of a family whose network the code has."""
    cut: str | bool = False
    """How transformers cuts a row that is too long, of which there is one where this says so."""

    @property
    def spec(self) -> TaskSpec:
        spec = task_spec(self.task)
        if not self.several:
            return spec
        changes: dict[str, Any] = {"name": "mine", "form": "labels", "labels": ("a", "b", "c"), "label_names": ()}
        return dataclasses.replace(spec, **changes, table=0, metrics=("micro_f1", "accuracy"))

    def write(self, folder: Path) -> None:
        """Write the model as ours and exported."""
        spec, tokenizer = self.spec, WORDS[self.words]
        encoder = FAMILIES[self.family].places
        below = network(self.family, self.words, **self.settings, **({} if encoder else {"n_special": 3}))
        outputs = form_of(spec).n_outputs(spec)
        kind: Any = EncoderClassificationModel if encoder else ClassificationModel
        model = kind(below.adapt() if encoder else below, Head(spec.form, outputs, 0.1, self.pooling)).eval()
        torch.nn.init.normal_(model.head.weight, std=0.3, generator=torch.Generator().manual_seed(9))
        if self.ngrams:
            delimiter = tokenizer.specials.sep if tokenizer.specials else tokenizer.n_vocab + 1
            model.ngrams = random_ngrams(
                self.ngrams, outputs, tokenizer.n_vocab + 3 * (not encoder), delimiter
            ).weighted(0.2)
        settings = {**task_settings(spec), "labels": list(spec.labels), "tokenizer_digest": tokenizer.digest}
        model.save(folder / "ours", settings)
        if self.shift:
            move_decision(folder / "ours", self.shift)
        model, settings = Classifier.load(folder / "ours")
        export_classifier(model, recorded_task(settings), settings, tokenizer, folder / "theirs")

    def rows(self) -> list[Any]:
        """Rows as transformers gets them."""
        if form_of(self.spec).choices:
            return [(first, [second, "the king", "here"][: len(self.spec.choices)]) for first, second in PAIRS]
        if len(self.spec.fields) == 1:
            return [first for first, _ in PAIRS]
        longer = [("the old king " * 20, "the cake " * 9)] if self.cut else []
        return [{"text": first, "text_pair": second} for first, second in [*PAIRS, *longer]]

    def ours(self, folder: Path) -> list[dict[str, Any]]:
        """What `predict` answers to the same rows."""
        spec, rows = self.spec, []
        for row in self.rows():
            texts = [row] if isinstance(row, str) else list(row.values()) if isinstance(row, dict) else [row[0]]
            asked: dict[str, Any] = dict(zip(form_of(spec).names_of(spec), texts, strict=False))
            rows.append({**asked, "answers": row[1]} if spec.choices else asked)
        model = TaskModel(folder, WORDS[self.words])
        return list(model.described(read_own_rows(spec, (json.dumps(row).encode() for row in rows))))


TUNED = {
    "best, a pair in both orders, n-grams, a moved decision": Tuned(
        "gpt2", "bytes", "qqp", BEST, ngrams=3, shift=0.7, pooling="mean", cut=True
    ),
    "best, a grade of a pair in both orders": Tuned("gpt2", "bytes", "stsb", BEST, ngrams=2),
    "best, a premise and a hypothesis": Tuned("gpt2", "bytes", "mnli", BEST, ngrams=3, cut="only_first"),
    "best of GPT-1": Tuned("gpt", "word", "sst2", BEST, ngrams=3),
    "best, choices": Tuned("gpt2", "bytes", "storycloze", BEST, "ForMultipleChoice", ngrams=3),
    "GPT-2 of transformers, a pair in both orders": Tuned(
        "gpt2", "bytes", "mrpc", SHAPE, pooling="mean", ngrams=1, native=True
    ),
    "choices of transformers' GPT-1": Tuned(
        "gpt", "word", "storycloze", {**SHAPE, "n_inner": 64}, "ForMultipleChoice", native=True
    ),
    "Llama with a padded vocabulary": Tuned("llama", "bytes", "mrpc", {**SHAPE, "n_vocab": 304}, pooling="mean"),
    "GPT-1": Tuned("gpt", "word", "mrpc", {**SHAPE, "n_inner": 64}),
    "GPT-BERT": Tuned("gptbert", "bytes", "rte", SHAPE, ngrams=1),
    "the LSTM": Tuned("lstm", "word", "rte", {"n_embd": 16, "n_units": 24}),
    "any number of labels": Tuned("gpt2", "bytes", "sst2", SHAPE, several=True),
    "BERT with the mean": Tuned("bert", "pieces", "rte", SHAPE, pooling="mean", ngrams=2, cut="only_first"),
    "a grade of BERT": Tuned("bert", "pieces", "stsb", SHAPE),
    "BERT as transformers has it": Tuned("bert", "pieces", "cola", SHAPE),
    "choices of ALBERT with n-grams": Tuned(
        "albert", "sentences", "storycloze", {**SHAPE, "n_embd_words": 8}, "ForMultipleChoice", ngrams=1
    ),
    "DistilBERT with the mean": Tuned("distilbert", "pieces", "qnli", SHAPE, pooling="mean"),
    "Llama with the mean": Tuned("llama", "bytes", "mrpc", {**SHAPE, "n_head_keys": 1, "untied": True}, pooling="mean"),
    "ELECTRA": Tuned("electra", "pieces", "mnli", {**SHAPE, "n_embd_words": 8}),
}
LANGUAGE: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "best": ("gpt2", "bytes", BEST, "ForCausalLM"),
    "GPT-1 of another inner width": ("gpt", "word", SHAPE, "ForCausalLM"),
    "the LSTM": ("lstm", "word", {"n_embd": 16, "n_units": 24}, "ForCausalLM"),
    "GPT-BERT, word by word": ("gptbert", "bytes", SHAPE, "ForCausalLM"),
    "GPT-BERT, as a whole": ("gptbert", "bytes", SHAPE, "ForMaskedLM"),
    "half shared": ("bert", "pieces", {**WORDS_ALONE, "sharing": "attention", "n_groups": 2}, "ForMaskedLM"),
    "the other half": (
        "albert",
        "sentences",
        {**WORDS_ALONE, "sharing": "feed-forward", "n_embd_words": 8},
        "ForMaskedLM",
    ),
    "waves": ("bert", "pieces", {**WORDS_ALONE, "sinusoidal": True, "sharing": "all", "n_groups": 3}, "ForMaskedLM"),
    "a discriminator": ("electra", "pieces", {**SHAPE, "sinusoidal": True}, "ForPreTraining"),
    "a trunk": ("bert", "pieces", {**SHAPE, "words": False, "pair": False, "sinusoidal": True}, ""),
}


def ids(words: str) -> dict[str, Any]:
    """Ids of three sequences, of which one is padded behind and one before."""
    draws = torch.Generator().manual_seed(1)
    tokens = torch.randint(6, WORDS[words].n_vocab, (3, 12), generator=draws)
    mask = torch.ones_like(tokens)
    mask[0, 9:], mask[1, :4] = 0, 0
    return {"input_ids": tokens.tolist(), "attention_mask": mask.tolist()}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """What a process without this package answers, by the name of the model; its folder in "folder"."""
    home = tmp_path_factory.mktemp("exported")
    requests: dict[str, dict[str, Any]] = {}

    def ask(name: str, folder: Path, **asked: Any) -> None:
        requests[name] = {"folder": str(folder), **asked}

    for number, (name, tuned) in enumerate(TUNED.items()):
        with pytest.MonkeyPatch.context() as patched:
            if tuned.native:
                patched.setitem(export._TABLES, "all", ())
            tuned.write(home / f"tuned{number}")
        ask(f"tuned {name}", home / f"tuned{number}" / "theirs", auto=tuned.auto, rows=tuned.rows(), cut=tuned.cut)
    for number, (name, (family, words, settings, auto)) in enumerate(LANGUAGE.items()):
        export_hugging_face(network(family, words, **settings), WORDS[words], home / f"lm{number}")
        more = {"generates": 5} if auto == "ForCausalLM" else {}
        ask(name, home / f"lm{number}", auto=auto, ids=ids(words), **more)
        ask(f"texts {name}", home / f"lm{number}", auto=auto, texts=HOSTILE)
    for name in [*requests]:
        if not name.startswith("texts"):
            ask(f"readme {name}", Path(requests[name]["folder"]), auto="", readme=True)
    script = Path(__file__).with_name("elsewhere.py")
    (home / "asked.json").write_text(json.dumps([*requests.values()]))
    command = [sys.executable, "-I", str(script), "asked.json", "told.json"]
    alone = {"HF_HOME": str(home / "hf")}
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False, env=alone)
    assert done.returncode == 0, done.stderr[-3000:]
    told = dict(zip(requests, json.loads((home / "told.json").read_text()), strict=True))
    return lambda name: (Path(requests[name]["folder"]), told[name])


@pytest.mark.parametrize("name", TUNED)
def test_a_pipeline_of_transformers_answers_as_predict_does(name: str, answered: Callable[[str], Any]) -> None:
    folder, theirs = answered(f"tuned {name}")
    ours = TUNED[name].ours(folder.parent / "ours")
    assert len(ours) == len(theirs) >= len(PAIRS)
    for mine, its in zip(ours, theirs, strict=True):
        if "score" in mine:
            assert its == {"score": pytest.approx(mine["score"], abs=1e-4)}
        elif isinstance(its, list):
            assert its == pytest.approx(list(mine["probabilities"].values()), abs=1e-5)
        else:
            assert its == pytest.approx(mine["probabilities"], abs=1e-5)
    assert len({json.dumps(answer) for answer in ours}) == len(ours), "or they would say little"
    if not (TUNED[name].native or TUNED[name].family == "llama" or FAMILIES[TUNED[name].family].places):
        assert TUNED[name].ours(folder) == ours, "the folder is one of ours, too"


@pytest.mark.parametrize("name", LANGUAGE)
def test_a_language_model_elsewhere_has_our_logits(name: str, answered: Callable[[str], Any]) -> None:
    folder, theirs = answered(name)
    family, words, settings, auto = LANGUAGE[name]
    model, given = network(family, words, **settings), {k: torch.tensor(v) for k, v in ids(words).items()}
    tokens, real = given["input_ids"], given["attention_mask"].bool()
    rows = (0, 2) if isinstance(model, Encoder) else range(3)  # transformers' encoders count padding in front
    for row in rows if auto else ():
        one = tokens[row, real[row]][None]
        if auto == "ForMaskedLM" and isinstance(model, BothWays):
            states = model.sequence_states(one, torch.tensor([one.shape[1] - 1]), model.table())
            expected, found = model.logits(states)[0, :-1], torch.tensor(theirs["logits"])[row, real[row]][1:]
        else:
            expected, found = model(one)[0], torch.tensor(theirs["logits"])[row, real[row]]
        torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-5)
    if auto == "ForCausalLM":
        longest = tokens[2:]
        for _ in range(5):
            chosen = model(longest)[0, -1, : model.config.n_vocab].argmax()
            longest = torch.cat([longest, chosen[None, None]], 1)
        assert theirs["text"][2] == longest[0].tolist()
    again = load_model(str(folder))
    if isinstance(model, Encoder):  # what layers share is written out
        torch.testing.assert_close(again.encode(tokens), model.encode(tokens))
    else:
        assert again.config == model.config
        assert all(torch.equal(mine, its) for mine, its in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("name", LANGUAGE)
def test_ids_elsewhere_are_ours(name: str, answered: Callable[[str], Any]) -> None:
    _, theirs = answered(f"texts {name}")
    if (words := LANGUAGE[name][1]) != "word":  # whose words transformers finds otherwise
        assert theirs["ids"] == WORDS[words].encode_batch(HOSTILE)


@pytest.mark.parametrize("name", [*(f"tuned {name}" for name in TUNED), *LANGUAGE])
def test_the_code_of_a_folders_readme_runs(name: str, answered: Callable[[str], Any]) -> None:
    folder, said = answered(f"readme {name}")
    text = (folder / "README.md").read_text()
    assert "$" not in text
    if name.startswith("tuned ") and (spec := TUNED[name.removeprefix("tuned ")].spec).labels and not spec.choices:
        assert all(label in said and label in text for label in spec.told_labels)
    else:
        assert said


@pytest.mark.parametrize("form", ["span", "tags"])
def test_places_over_a_network_of_transformers(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of families whose layout writes no classifier."""
    monkeypatch.setattr(EncoderLayout, "write_classifier", Layout.write_classifier)
    labels = ("O", "B", "I") if form == "tags" else ()
    model = EncoderClassificationModel(
        network("bert", "pieces", **SHAPE).adapt(), Head(form, 2 + (form == "tags"), 0.1)
    ).eval()
    torch.nn.init.normal_(model.head.weight)
    export_classifier(model, task_of(form, labels), {}, WORDS["pieces"], tmp_path)
    auto: Any = {
        "span": transformers.AutoModelForQuestionAnswering,
        "tags": transformers.AutoModelForTokenClassification,
    }
    theirs = auto[form].from_pretrained(tmp_path, trust_remote_code=True).eval()
    given = {name: torch.tensor(value) for name, value in ids("pieces").items()}
    tokens, mask = given["input_ids"][[0, 2]], given["attention_mask"][[0, 2]]
    found = theirs(tokens, attention_mask=mask)
    logits = found.logits if form == "tags" else torch.stack([found.start_logits, found.end_logits], -1)
    expected, _ = model(tokens[:, None], torch.zeros(1), mask=mask[:, None].bool())
    torch.testing.assert_close(logits[mask.bool()], expected[mask.bool()], rtol=1e-5, atol=1e-5)
