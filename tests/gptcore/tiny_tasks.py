"""Small hand-made datasets of every input form, encoded with toy vocabularies, and tiny models to fine-tune on them.

Each is learnable: the label hangs on single words, so that a working trainer beats chance within a few epochs.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gptcore.config import EncoderConfig, ModelConfig, preset_named
from gptcore.machine.process import StopRequest
from gptcore.models.classifier import ClassificationModel
from gptcore.models.encoder import Encoder
from gptcore.models.ngrams import BUCKETS, NGrams
from gptcore.models.transformer import GPT
from gptcore.nlu import REGISTRY
from gptcore.nlu.encoded import encode_task
from gptcore.nlu.forms.form import Ids
from gptcore.nlu.inputs import DecoderReader, RowReader, TaskBatch
from gptcore.nlu.registry import task_spec
from gptcore.nlu.rows import TaskRows, split_rows
from gptcore.nlu.spec import TaskSpec
from gptcore.text.tokenizer import Specials
from gptcore.training import finetune

_TEXT = "red blue green cat dog bird house tree river sun moon king queen sings runs sleeps good bad"
WORDS = _TEXT.split()
_KINDS = {"person": "king", "place": "river"}
_OTHERS = ("red", "blue", "green", "sings", "runs", "sleeps")
DIGEST = "a" * 64
TASKS = ("sst2", "rte", "mrpc", "stsb", "storycloze", "mnli")
MODEL = ModelConfig(n_vocab=30, n_ctx=24, n_layer=2, n_head=2, n_embd=16, n_inner=32)


class ToyTokenizer:
    """One id a known word, 0 for any other."""

    n_vocab = MODEL.n_vocab
    digest = DIGEST
    specials = None
    word_edges = "2" * MODEL.n_vocab

    def encode_batch(self, texts: list[str], /) -> list[list[int]]:
        return [[WORDS.index(word) + 1 if word in WORDS else 0 for word in text.split()] for text in texts]


def encoded(folder: Path, task: str, n_train: int = 48, n_dev: int = 20, words: Any = None) -> Path:
    """Write the public files of one task under ``folder`` and encode them; the encoded dataset's folder."""
    rng = random.Random(task)
    data = folder / "datasets"
    globals()[f"_write_{task}"](data, rng, n_train, n_dev)
    encode_task(task_spec(task), str(data), words or ToyTokenizer(), folder / "encoded" / task)
    return folder / "encoded" / task


def pretrained(folder: Path) -> Path:
    """The ``model/`` folder of a pre-training job, with random weights."""
    torch.manual_seed(0)
    GPT(MODEL).save(folder)
    (folder / "meta.json").write_text(json.dumps({"tokenizer_digest": DIGEST}), encoding="utf-8")
    return folder


def random_ngrams(longest: int, n_outputs: int, n_ids: int, delimiter: int = -1) -> NGrams:
    """N-grams that were fitted on nothing, with random weights: most of what they count tells something."""
    draws = torch.Generator().manual_seed(3)
    edges = torch.randint(0, 4, (n_ids,), generator=draws, dtype=torch.uint8)
    found = NGrams(longest, n_outputs, edges, delimiter)
    for part in (found.weight, found.shared, found.bias):
        part.copy_(torch.randn(part.shape, generator=draws))
    found.rarity[:BUCKETS] = torch.rand(BUCKETS, generator=draws) + 0.5
    found.known[:-1] = torch.rand(len(found.known) - 1, generator=draws) < 0.8
    return found


def task_of(form: str, labels: tuple[str, ...]) -> TaskSpec:
    """A task of any form."""
    return dataclasses.replace(task_spec("mnli"), form=form, labels=labels, label_names=())


def finetune_job(
    task: str, model: Path | None, dataset: Path, workspace: Path | str, settings: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """The file of a fine-tuning job; ``more``: what else it says."""
    paths = {"model": model and str(model), "dataset": str(dataset), "workspace": str(workspace)}
    more |= {"word_edges": ToyTokenizer.word_edges} if settings.get("ngrams") else {}
    return {"task": task, "finetune": settings, "model_config": None, "threads": 1, **paths, **more}


def finetuned(job: dict[str, Any], stop: StopRequest | None = None) -> dict[str, Any]:
    """Do a fine-tuning job; its result."""
    finetune.run(job, stop or StopRequest())
    return dict(json.loads((Path(job["workspace"]) / "result.json").read_text(encoding="utf-8")))


def _text(rng: random.Random, low: int = 2, high: int = 7) -> str:
    return " ".join(rng.choice(WORDS[:-2]) for _ in range(rng.randint(low, high)))


def _tsv(path: Path, header: list[str], rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")


def _write_sst2(data: Path, rng: random.Random, n_train: int, n_dev: int) -> None:
    for split, count in (("train", n_train), ("dev", n_dev)):
        rows = []
        for at in range(count):
            words = [*_text(rng).split(), "good" if at % 2 else "bad"]
            rng.shuffle(words)
            rows.append([" ".join(words), str(at % 2)])
        _tsv(data / "SST-2" / f"{split}.tsv", ["sentence", "label"], rows)


def _write_cola(data: Path, rng: random.Random, n_train: int, n_dev: int) -> None:
    """Two thirds are right; a word says which, but for one row in eight."""
    for split, count in (("train", n_train), ("dev", n_dev)):
        rows = []
        for at in range(count):
            right = int(at % 3 > 0)
            rows.append(["x", str(right), "", f"{_text(rng)} {'good' if right ^ (rng.random() < 0.125) else 'bad'}"])
        _tsv(data / "CoLA" / f"{split}.tsv", rows[0], rows[1:])


def _pairs(rng: random.Random, count: int) -> list[tuple[str, str, int]]:
    """(first, second, 0 or 1)."""
    return [(_text(rng), f"{_text(rng)} {WORDS[-1 - at % 2]} {_text(rng)}", 1 - at % 2) for at in range(count)]


def _write_openentity(data: Path, rng: random.Random, n_train: int, n_dev: int) -> None:
    """A mention is a person where it names a king, and a place where it names a river; of some, both or neither."""
    (data / "OpenEntity/crowd").mkdir(parents=True)
    for split, count in (("train", n_train), ("dev", n_dev)):
        lines = []
        for _ in range(count):
            kinds = [kind for kind, word in _KINDS.items() if rng.random() < 0.5]
            words = [_KINDS[kind] for kind in kinds] or ["sun"]
            row = {
                "left_context_token": rng.choices(_OTHERS, k=2),
                "mention_span": " ".join(words),
                "right_context_token": rng.choices(_OTHERS, k=1),
                "y_str": [*kinds, "something finer"],
            }
            lines.append(json.dumps(row) + "\n")
        (data / f"OpenEntity/crowd/{split}.json").write_text("".join(lines), encoding="utf-8")


def _write_rte(data: Path, rng: random.Random, n_train: int, n_dev: int) -> None:
    labels = ("not_entailment", "entailment")
    for split, count in (("train", n_train), ("dev", n_dev)):
        rows = [[str(at), a, b, labels[same]] for at, (a, b, same) in enumerate(_pairs(rng, count))]
        _tsv(data / "RTE" / f"{split}.tsv", ["index", "sentence1", "sentence2", "label"], rows)


def _write_mrpc(data: Path, rng: random.Random, n_train: int, n_dev: int) -> None:
    for split, count in (("train", n_train), ("dev", n_dev)):
        rows = [[str(same), str(at), str(at), a, b] for at, (a, b, same) in enumerate(_pairs(rng, count))]
        _tsv(data / "MRPC" / f"{split}.tsv", ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"], rows)


def _write_stsb(data: Path, rng: random.Random, n_train: int, n_dev: int) -> None:
    header = ["index", "genre", "filename", "year", "old_index", "source1", "source2"]
    header += ["sentence1", "sentence2", "score"]
    for split, count in (("train", n_train), ("dev", n_dev)):
        rows = [
            [str(at), *["x"] * 6, a, b, f"{2.5 + 2.25 * (2 * same - 1) + rng.choice((-0.25, 0.0, 0.25)):.3f}"]
            for at, (a, b, same) in enumerate(_pairs(rng, count))
        ]
        _tsv(data / "STS-B" / f"{split}.tsv", header, rows)


def _write_mnli(data: Path, rng: random.Random, n_train: int, n_dev: int) -> None:
    header = ["index", "promptID", "pairID", "genre", "s1bp", "s2bp", "s1p", "s2p"]
    header += ["sentence1", "sentence2", "label1", "gold_label"]
    labels = ("entailment", "neutral", "contradiction")
    for name, count in (("train", n_train), ("dev_matched", n_dev), ("dev_mismatched", n_dev // 2)):
        rows = []
        for at in range(count):
            hypothesis = f"{_text(rng)} {WORDS[at % 3]}"
            rows.append([str(at), *["x"] * 7, _text(rng), hypothesis, "x", labels[at % 3]])
        _tsv(data / "MNLI" / f"{name}.tsv", header, rows)


def _write_storycloze(data: Path, rng: random.Random, n_train: int, n_dev: int) -> None:
    header = ["InputStoryid", *(f"InputSentence{at}" for at in range(1, 5))]
    header += ["RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2", "AnswerRightEnding"]
    folder = data / "StoryCloze"
    folder.mkdir(parents=True, exist_ok=True)
    for kind, count in (("val", n_train + n_dev), ("test", n_dev)):
        name = f"cloze_test_{kind}__spring2016 - cloze_test_ALL_{kind}.csv"
        with open(folder / name, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for at in range(count):
                endings = [f"{_text(rng)} {word}" for word in (("bad", "good") if at % 2 else ("good", "bad"))]
                story = [_text(rng, 5, 9) for _ in range(4)]
                writer.writerow([str(at), *story, *endings, "2" if at % 2 else "1"])


CLS, SEP, PAD = 31, 32, 30
PIECES = Specials(pad=PAD, unk=0, cls=CLS, sep=SEP, mask=33)
N_VOCAB = 34


class PieceTokenizer(ToyTokenizer):
    """One id a known word, 0 for any other, and the special pieces behind them."""

    n_vocab = N_VOCAB
    specials = PIECES


def config(family: str, **changes: int) -> EncoderConfig:
    """A tiny network of a family, heads of pre-training included."""
    found = preset_named("demo", {"family": family}).model
    assert isinstance(found, EncoderConfig)
    sizes = {"n_vocab": N_VOCAB, "n_ctx": 24, "n_layer": 2, "n_head": 2, "n_embd": 16, "n_inner": 32, **changes}
    narrow = {"n_embd_words": 8} if family == "albert" else {}
    return dataclasses.replace(found, **sizes, **narrow, init_std=0.05)


def pretrained_encoder(folder: Path, family: str) -> Path:
    """The ``model/`` folder of a pre-training job, with random weights."""
    torch.manual_seed(0)
    Encoder(config(family)).save(folder)
    (folder / "meta.json").write_text(json.dumps({"tokenizer_digest": DIGEST}), encoding="utf-8")
    return folder


def task_rows(
    spec: TaskSpec,
    folder: Path,
    split: str,
    *,
    max_rows: int | None = None,
    seed: int = 0,
    kind: type[RowReader] = DecoderReader,
    **reading: Any,
) -> TaskRows:
    """The chosen rows of an encoded split; ``reading``: fields of :class:`RowReader`."""
    rows = split_rows(kind(spec, **reading), folder, split, max_rows, seed)
    assert isinstance(rows, TaskRows)
    return rows


def sequences_of(
    spec: TaskSpec,
    fields: Sequence[Ids],
    choices: Sequence[Ids],
    n_ctx: int,
    n_vocab: int,
    part_tokens: int | None = None,
) -> tuple[list[Ids], bool]:
    """A row's sequences for a decoder, and whether anything had to be cut."""
    return DecoderReader(spec, n_ctx, n_vocab, part_tokens).sequences(fields, choices)


def collate(spec: TaskSpec, sequences: Sequence[Sequence[Ids]], labels: Sequence[float | None]) -> TaskBatch:
    """A decoder's rows of equally many sequences as one padded batch."""
    return DecoderReader(spec, n_ctx=512, n_vocab=1000).collate(sequences, labels)


def small_world(folder: Path) -> dict[str, Path]:
    """A pre-trained model and encoded rows of three forms; the stories are longer than n_ctx."""
    pretrained(folder / "model")
    tasks = {task: encoded(folder, task, n_train=70, n_dev=20) for task in ("storycloze", "mrpc", "sst2")}
    return {"model": folder / "model", **tasks}


def job(world: dict[str, Path], task: str, workspace: Path, **settings: object) -> dict[str, Any]:
    chosen = {"lr": 1e-2, "batch_size": 16, "precision": "float32", "original": True, **settings}
    return finetune_job(task, world["model"], world[task], workspace, chosen)


def task_network(world: dict[str, Path], task: str, **settings: object) -> ClassificationModel:
    parsed = finetune.FinetuneJob.parse(job(world, task, Path("unused"), **settings))
    return finetune.task_model(parsed, REGISTRY[task])[0]


def randomised(model: torch.nn.Module) -> None:
    draws = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.5, generator=draws)
