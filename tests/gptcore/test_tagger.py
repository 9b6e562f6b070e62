"""Tags of words told together: beside all paths written out, the rows that say where words begin, a student."""

from __future__ import annotations

import dataclasses
import itertools
import json
import zlib
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gptcore.base.errors import InputError
from gptcore.config import DistilConfig, FinetuneConfig
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.evaluation.inference import predict_jsonl
from gptcore.evaluation.predict import TaskModel, evaluate
from gptcore.machine import process
from gptcore.models.classifier import Classifier, EncoderClassificationModel, Head
from gptcore.models.encoder import Encoder, without_heads
from gptcore.models.files.export import export_classifier
from gptcore.models.tagger import WordTagger
from gptcore.nlu import task_spec
from gptcore.nlu.encoded import marked_examples
from gptcore.nlu.inputs import EncoderReader
from gptcore.nlu.readers.tagged import tagged_example
from gptcore.nlu.rows import WindowRows, first_pieces
from gptcore.nlu.word_features import N_FEATURES, N_ROWS, word_features
from gptcore.papers.students.task import TaughtClassifier, taught_classifier, taught_objective
from gptcore.text.wordpiece import WordPieceTokenizer
from gptcore.training import finetune
from tests.gptcore.test_places import TEXT, job
from tests.gptcore.tiny_tasks import config

WIDTH, TAGS = 6, 3


@pytest.fixture(scope="module")
def pieces() -> WordPieceTokenizer:
    return WordPieceTokenizer.train([TEXT] * 3, 40)


def tagger() -> tuple[WordTagger, torch.nn.Linear]:
    torch.manual_seed(0)
    made = WordTagger(WIDTH, TAGS)
    for part in (made.follows, made.first, made.last):
        torch.nn.init.normal_(part)
    return made.eval(), torch.nn.Linear(WIDTH, TAGS)


def given() -> tuple[Tensor, Tensor]:
    """States and features of two texts, of four words and of one; words begin at some positions."""
    torch.manual_seed(1)
    words = torch.zeros(2, 9, N_FEATURES, dtype=torch.long)
    for row, at in ((0, 1), (0, 3), (0, 4), (0, 7), (1, 2)):
        words[row, at] = torch.randint(1, N_ROWS, (N_FEATURES,))
    return torch.randn(2, 9, WIDTH), words


def plain_scores(model: WordTagger, layer: torch.nn.Linear, states: Tensor, words: Tensor) -> Tensor:
    """The scores of the words of one text [T, D], each read with two on either side: [W, K]."""
    at = (words[:, 0] > 0).nonzero()[:, 0].tolist()
    each = [torch.cat([states[p], model.looks.features(words[p]).sum(0) / N_FEATURES**0.5]) for p in at]
    none = torch.zeros_like(each[0])
    padded = [none, none, *each, none, none]
    near = [torch.cat(padded[n : n + 5]) for n in range(len(each))]
    return torch.stack([layer(torch.relu(model.window(x))) for x in near])  # (W, K)


def path_score(model: WordTagger, scores: Tensor, path: tuple[int, ...]) -> Tensor:
    score = model.first[path[0]] + model.last[path[-1]]
    score = score + sum(scores[at, tag] for at, tag in enumerate(path))
    return score + sum(model.follows[a, b] for a, b in itertools.pairwise(path))


def test_scores_and_loss_are_those_of_all_paths_written_out() -> None:
    model, layer = tagger()
    states, words = given()
    best = model(states, words[..., 0], words, layer, 0.0)
    model.train()
    model.looks.features.weight.requires_grad_(False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gptcore.models.tagger._PDROP", 0.0)
        emitted = model(states, words[..., 0], words, layer, 0.0)
    tags = torch.full((2, 9), IGNORE_INDEX)
    right = ((2, 0, 1, 1), (2,))
    nats = []
    for row, path in enumerate(right):
        at = (words[row, :, 0] > 0).nonzero()[:, 0]
        tags[row, at] = torch.tensor(path)
        scores = plain_scores(model, layer, states[row], words[row])
        torch.testing.assert_close(emitted[row, at], scores)
        paths = {each: path_score(model, scores, each) for each in itertools.product(range(TAGS), repeat=len(at))}
        nats.append(torch.logsumexp(torch.stack([*paths.values()]), 0) - paths[path])
        for word, tag in itertools.product(range(len(at)), range(TAGS)):
            with_it = max(score for each, score in paths.items() if each[word] == tag)
            torch.testing.assert_close(best[row, at[word], tag], with_it)
        assert tuple(best[row, at].argmax(-1).tolist()) == max(paths, key=lambda each: float(paths[each]))
    loss, expected = model.loss(emitted, tags), torch.stack(nats).sum() / 5
    torch.testing.assert_close(loss, expected)
    weights = [*model.window.parameters(), model.follows, model.first, model.last]
    for ours, theirs in zip(
        *(torch.autograd.grad(each, weights, retain_graph=True) for each in (loss, expected)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
    assert float(model.loss(emitted, torch.full_like(tags, IGNORE_INDEX))) == 0.0


def test_padding_and_other_rows_change_nothing() -> None:
    model, layer = tagger()
    states, words = given()
    together = model(states, words[..., 0], words, layer, 0.0)
    alone = model(states[1:, :4], words[1:, :4, 0], words[1:, :4], layer, 0.0)
    torch.testing.assert_close(alone[0, 2], together[1, 2])
    nothing = model(states, words[..., 0], torch.zeros_like(words), layer, 0.0)
    assert torch.isfinite(nothing).all(), "a window may hold the end of a word and no more"


def test_features_tell_capitals_and_affixes_and_stay_the_same() -> None:
    rome, lower, other = (word_features(word) for word in ("Rome", "rome", "Rimini"))
    assert len(rome) == N_FEATURES
    assert all(0 < number < N_ROWS for number in (*rome, *lower, *other))
    assert sum(a == b for a, b in zip(rome, lower, strict=True)) == 4, "spelt small, and three endings"
    assert sum(a == b for a, b in zip(rome, other, strict=True)) == 2, "R, and a capital before small letters"
    texts = (b"word Rome", b"lower rome", b"shape Xxx", b"1< R")  # models hold rows of these numbers
    assert rome[:4] == tuple(1 + zlib.crc32(text) % 32767 for text in texts)


def test_rows_have_the_features_where_tags_stand(pieces: WordPieceTokenizer) -> None:
    words = ["annaoslo", "\x01", "went", "romerome"]
    row = marked_examples(pieces, [tagged_example(words, ["B-PER", "O", "O", "B-LOC"], "", "r", 0.0)])[0]
    reader = EncoderReader(task_spec("conll2003"), 40, pieces.n_vocab, pieces=pieces.specials)
    assert WindowRows(reader, [row]).batch([0]).words is None
    batch = WindowRows(dataclasses.replace(reader, words=True), [row]).batch([0])
    assert batch.words is not None
    assert batch.labels is not None
    assert torch.equal(batch.words[0, 0, :, 0] > 0, batch.labels[0] >= 0)
    for word, piece in zip(words, first_pieces(row), strict=True):
        if piece >= 0:
            assert tuple(batch.words[0, 0, 1 + piece].tolist()) == word_features(word)


def test_a_job_learns_and_its_model_answers_own_rows(tmp_path: Path, pieces: WordPieceTokenizer) -> None:
    given_job = job(tmp_path, pieces, "conll2003", words=True, select="refit")
    finetune.run(given_job, process.StopRequest())
    workspace = Path(given_job["workspace"])
    result = json.loads((workspace / "result.json").read_text())
    assert result["dev/score"] >= 0.95, result
    again = evaluate(workspace / "model", Path(given_job["dataset"]), "dev", precision="float32")
    assert again["score"] == pytest.approx(result["dev/score"])
    (row,) = predict_jsonl(TaskModel(workspace / "model", pieces), [b'{"text": "anna went to oslo ."}'])
    assert row["tags"] == ["B-PER", "O", "O", "B-LOC", "O"]


def network(words: bool = True, seed: int = 0) -> EncoderClassificationModel:
    encoder = Encoder(without_heads(config("bert")), torch.Generator().manual_seed(seed))
    return EncoderClassificationModel(encoder, Head("tags", TAGS, 0.0, words=words)).eval()


def test_a_student_learns_what_its_teacher_tells_of_words() -> None:
    words = given()[1]
    teacher, student = network(seed=0), network(seed=1)
    torch.nn.init.normal_(teacher.head.bias, std=2.0)
    tags = torch.where(words[..., 0] > 0, 0, IGNORE_INDEX)
    batch = {"tokens": torch.randint(5, 30, (2, 1, 9)), "segments": torch.zeros(2, 1, 9, dtype=torch.long)}
    batch |= {"mask": torch.ones(2, 1, 9, dtype=torch.bool), "words": words[:, None], "labels": tags}
    batch |= {"clf_position": torch.zeros(2, 1, dtype=torch.long), "share": torch.tensor(1.0)}
    learnt = TaughtClassifier(student, None)
    objective = taught_objective(learnt, teacher, DistilConfig(word_weight=0.0))
    optimizer = torch.optim.Adam(student.parameters(), 1e-2)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss, _ = objective(batch | {"layers": torch.tensor(False)})
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.01
    with pytest.raises(InputError, match="here: answers tags of 3, with words, expected tags of 3"):
        taught_classifier(network(words=False), teacher, DistilConfig(), FinetuneConfig(lm_coef=0.0), "here")


def test_what_cannot_be_exported_or_read_is_refused(tmp_path: Path, pieces: WordPieceTokenizer) -> None:
    with pytest.raises(InputError, match=r"finetune\.words, which reads the text itself"):
        export_classifier(network(), task_spec("conll2003"), {}, pieces, tmp_path / "out")
    network().save(tmp_path / "model", {})
    again, about = Classifier.load(tmp_path / "model")
    assert again.words
    assert about["head"]["words"] is True
    about["head"]["form"] = "pair"
    (tmp_path / "model" / "config.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="expected form, n_outputs, clf_pdrop, pooling, words and ngrams"):
        Classifier.load(tmp_path / "model")
