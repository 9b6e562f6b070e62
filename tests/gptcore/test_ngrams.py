"""Words and n-grams beside a network: the logits of plain sums, scikit-learn's fit, a model that is kept with them."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from gptcore.base.errors import InputError
from gptcore.config import FinetuneConfig
from gptcore.evaluation.predict import evaluate
from gptcore.machine.process import Interrupted
from gptcore.models import onnx
from gptcore.models.classifier import Classifier
from gptcore.models.ngrams import NGrams
from gptcore.models.onnx import export_onnx
from gptcore.nlu.encoded import read_encoded
from gptcore.nlu.inputs import DecoderReader, EncodedExample
from gptcore.nlu.registry import TaskSpec, task_spec
from gptcore.nlu.rows import TaskRows
from gptcore.training import ngrams
from gptcore.training.best_epoch import BestEpoch
from gptcore.training.ngram_floor import score_ngrams
from gptcore.training.ngrams import Bags, NGramFit, Shares, Sums
from tests.gptcore.test_losses import batch, model
from tests.gptcore.tiny_tasks import (
    MODEL,
    ToyTokenizer,
    encoded,
    finetune_job,
    finetuned,
    pretrained,
    random_ngrams,
    task_rows,
)

DELIMITER = 7
EDGES = ToyTokenizer.word_edges


Texts = tuple[set[int], set[int]]
"""The buckets of what stands in the first text and in the second, the delimiter being of the latter."""


def plain_words(ids: list[int], edges: list[int]) -> list[list[int]]:
    words: list[list[int]] = [[]]
    for at, index in enumerate(ids):
        words[-1].append(index)
        if at + 1 < len(ids) and (edges[index] >= 2 or edges[ids[at + 1]] % 2):
            words.append([])
    return words


def plain_grams(ids: list[int], longest: int, edges: list[int], delimiter: int) -> list[Texts]:
    """Runs of 1, 2, ... ids and words, each of the text that its last id stands in.

    A run's bucket is base 1,000,003, modulo 2^31 - 1, then modulo 2^16; a word's a sum over its ids.
    """
    second = ids.index(delimiter) if delimiter in ids else len(ids)
    found: list[Texts] = [(set(), set()) for _ in range(longest + 1)]
    for length in range(1, longest + 1):
        for start in range(len(ids) - length + 1):
            code = ids[start]
            for following in ids[start + 1 : start + length]:
                code = (code * 1_000_003 + following + 1) % (2**31 - 1)
            found[length - 1][start + length > second].add(code % 65_536)
    at = 0
    for word in plain_words(ids, edges):
        at += len(word)
        codes = [(one + 1) * 1_000_003 + (one + 1) * (next + 1) for one, next in pairwise(word)]
        codes.append((word[-1] + 1) * 1_000_003)
        found[-1][at > second].add(sum(code % (2**31 - 1) for code in codes) % 65_536)
    return found


def by_side(texts: Texts) -> list[set[int]]:
    first, second = texts
    return [first - second, second - first, first & second]


def plain_logits(layer: NGrams, ids: list[int]) -> torch.Tensor:
    found = plain_grams(ids, layer.longest, layer.edges.tolist(), int(layer.delimiter))
    told, common = layer.bias.clone(), list[list[float]]()
    rarity = layer.rarity.tolist()
    for texts in found:
        for side, buckets in enumerate(by_side(texts)):
            known = [bucket for bucket in buckets if layer.known[3 * bucket + side]]
            length = math.hypot(*(rarity[bucket] for bucket in known)) or 1.0
            told += sum(rarity[bucket] / length * layer.weight[3 * bucket + side] for bucket in known)
        both = sum(rarity[bucket] for bucket in texts[0] & texts[1])
        common.append([both / (sum(rarity[bucket] for bucket in text) or 1.0) for text in texts])
    sizes = [math.log1p(len(text)) for text in found[0]]
    return told + torch.tensor([*np.transpose(common).flatten(), *sizes], dtype=torch.float32) @ layer.shared


@pytest.mark.parametrize(("form", "n_sequences"), [("single", 1), ("pair", 2), ("choices", 4)])
def test_they_add_to_the_networks_logits_what_they_tell_of_each_sequence(form: str, n_sequences: int) -> None:
    network, (rows, tokens, ends) = model(form, clf_pdrop=0.0), batch(n_sequences)
    with torch.no_grad():
        alone, _ = network(tokens, ends)
        network.ngrams = random_ngrams(3, network.n_outputs, 23, DELIMITER)
        together, _ = network(tokens, ends)
    each = [[plain_logits(network.ngrams, ids) for ids in sequences] for sequences in rows]
    told = [torch.cat(logits) if form == "choices" else torch.stack(logits).sum(dim=0) for logits in each]
    torch.testing.assert_close(together - alone, torch.stack(told), rtol=1e-4, atol=1e-5)


def test_their_logits_are_not_rounded_where_the_networks_products_are() -> None:
    _, tokens, ends = batch(2)
    layer = random_ngrams(3, 2, 23, DELIMITER)
    wanted = layer(tokens, ends)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(tokens, ends)
    assert torch.equal(found, wanted)


def test_one_onnx_file_has_to_hold_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = model("single", clf_pdrop=0.0)
    network.ngrams = random_ngrams(3, network.n_outputs, 23, DELIMITER)
    n_bytes = sum(part.numel() * part.element_size() for part in network.parameters())
    monkeypatch.setattr(onnx, "_LARGEST_FILE", 2 * n_bytes)
    with pytest.raises(InputError, match="found weights of"):
        export_onnx(network, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def plain_features(rows: TaskRows, longest: int) -> tuple[list[list[int]], np.ndarray]:
    """The rows' ids, and a matrix of what is fitted: grams by rarity, a length of 1 each kind, and sizes, scaled."""
    sentences = []
    for number in range(len(rows)):
        part = rows.batch([number])
        sentences.append(part.tokens[0, 0, : int(part.clf_position) + 1].tolist())
    grams = [[texts[0] for texts in plain_grams(ids, longest, [3] * 33, -1)] for ids in sentences]
    counts = Counter(bucket for kinds in grams for bucket in set().union(*kinds))
    known = sorted(counts)
    features = np.zeros((len(rows), len(known)))
    for row, kinds in zip(features, grams, strict=True):
        for buckets in kinds:
            weights = {bucket: 1 + math.log((1 + len(rows)) / (1 + counts[bucket])) for bucket in buckets}
            for bucket, weight in weights.items():
                row[known.index(bucket)] += weight / math.hypot(*weights.values())
    sizes = np.log1p([[len(kinds[0])] for kinds in grams])
    return sentences, np.hstack([features, (sizes - sizes.mean()) / sizes.std()])


def test_they_are_fitted_as_logistic_regression_is(tmp_path: Path) -> None:
    spec, folder = task_spec("sst2"), encoded(tmp_path, "sst2", n_train=200)
    rows = task_rows(spec, folder, "train", n_ctx=MODEL.n_ctx, n_vocab=MODEL.n_vocab, max_rows=None, seed=0)
    layer = NGramFit(spec, rows, EDGES, 2, lambda: False).layer(0.5)
    sentences, features = plain_features(rows, 2)
    # One vector for two classes has their difference, whose square is twice the sum of theirs.
    twin = LogisticRegression(C=2 / 0.5, tol=1e-8, max_iter=10_000).fit(features, rows.labels)
    with torch.no_grad():
        logits = torch.stack([plain_logits(layer, ids) for ids in sentences])
    told = torch.log_softmax(logits, dim=-1).numpy()
    np.testing.assert_allclose(told, twin.predict_log_proba(features), atol=5e-3)


def test_sums_have_the_gradients_of_an_embedding_bag() -> None:
    draws = torch.Generator().manual_seed(0)
    table = torch.randn(7, 3, generator=draws, dtype=torch.float64, requires_grad=True)
    sizes, rows = torch.tensor([3, 0, 4]), torch.tensor([0, 2, 2, 6, 1, 0, 5])
    weights = torch.rand(7, generator=draws, dtype=torch.float64)
    bags = Bags.of(rows, weights, sizes, len(table))
    found, wanted = [
        F.embedding_bag(rows, table, bags.starts, per_sample_weights=weights, mode="sum")
        if plain
        else Sums.apply(table, *bags)
        for plain in (False, True)
    ]
    torch.testing.assert_close(found, wanted)
    outer = torch.randn(3, 3, generator=draws, dtype=torch.float64)
    mine, theirs = (torch.autograd.grad((each * outer).sum(), table)[0] for each in (found, wanted))
    torch.testing.assert_close(mine, theirs)


def test_a_fit_ends_when_it_is_told_to(tmp_path: Path) -> None:
    spec, folder = task_spec("sst2"), encoded(tmp_path, "sst2", n_train=40)
    rows = task_rows(spec, folder, "train", n_ctx=MODEL.n_ctx, n_vocab=MODEL.n_vocab, max_rows=None, seed=0)
    fit = NGramFit(spec, rows, EDGES, 2, lambda: True)
    with pytest.raises(Interrupted):
        fit.layer(0.5)


def test_what_two_texts_share_is_told_of_words_never_met(tmp_path: Path) -> None:
    """Right is the answer that shares words with the question, whichever words these are."""
    draws = np.random.default_rng(0)
    reader = DecoderReader(task_spec("storycloze"), 40, 1000)
    examples = []
    for number in range(300):
        first, last = (0, 500) if number < 200 else (500, 1000)  # the last rows have words of their own
        asked, other = draws.integers(first, last, (2, 8))
        answers = [draws.permutation(np.concatenate([asked[:3], other[:3]])), other[2:8]]
        right = int(draws.integers(2))
        fields = (asked[:2], asked[2:4], asked[4:6], asked[6:])
        examples.append(EncodedExample(fields, tuple(answers[::-1] if right else answers), right, "", ""))
    seen, asked_for = (TaskRows(reader, examples, np.arange(*part)) for part in ((0, 200), (200, 300)))
    layer = NGramFit(reader.spec, seen, "3" * 1000, 2, lambda: False).layer(0.1)
    batch = asked_for.batch(np.arange(100))
    told = layer(batch.tokens, batch.ends)[..., 0].argmax(dim=1)
    assert (told == batch.labels).float().mean() > 0.95


@pytest.mark.parametrize("select", ["held-out", "refit"])
def test_however_much_they_count_probabilities_are_right_on_average(
    select: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word tells the class of seven rows in eight; 32 times the logits that learnt it are certain of every one."""
    dataset, network = encoded(tmp_path, "cola", n_train=1200, n_dev=400), pretrained(tmp_path / "model")
    settings = {"lr": 1e-6, "batch_size": 16, "epochs": 1, "precision": "float32", "select": select, "ngrams": 2}
    monkeypatch.setattr(ngrams, "_SHARES", (Shares(1.0, 32.0),))

    def log_odds(name: str) -> NDArray[np.float64]:
        result = finetuned(finetune_job("cola", network, dataset, tmp_path / name, settings))
        lines = map(json.loads, (tmp_path / name / "predictions" / "dev.jsonl").read_text().splitlines())
        first, second = np.asarray([line["logits"] for line in lines]).T
        return np.asarray(second - first - result["decision_shift"])

    calibrated = log_odds("calibrated")
    monkeypatch.setattr(ngrams, "_SCALES", [np.float32(1)])
    certain = log_odds("certain")
    scale = calibrated.std() / certain.std()
    assert scale < 0.2
    np.testing.assert_allclose(calibrated, scale * certain, atol=1e-3)  # both parts were scaled: no answer changes
    confidence, sure = (float(np.mean(1 / (1 + np.exp(-np.abs(found))))) for found in (calibrated, certain))
    assert abs(confidence - 7 / 8) < 0.04
    assert sure > 0.97


@pytest.mark.parametrize("select", ["held-out", "refit", "dev"])
@pytest.mark.parametrize("task", ["sst2", "stsb", "storycloze"])
def test_a_network_that_has_learnt_nothing_answers_by_them(task: str, select: str, tmp_path: Path) -> None:
    dataset, network = encoded(tmp_path, task, n_train=160, n_dev=40), pretrained(tmp_path / "model")
    settings = {"lr": 1e-6, "batch_size": 16, "epochs": 1, "precision": "float32", "select": select}
    found = {}
    for longest in (None, 2):
        job = finetune_job(task, network, dataset, tmp_path / f"{longest}", {**settings, "ngrams": longest})
        found[longest] = finetuned(job)
    assert "ngrams_weight" not in found[None]
    assert found[2]["ngrams_weight"] > 0
    assert found[2]["network/dev/score"] == pytest.approx(found[None]["dev/score"], abs=1e-6)
    assert found[2]["dev/score"] > max(0.7, found[None]["dev/score"] + 0.1)
    chosen_on = "dev" if select == "dev" else "validation"
    assert found[2][f"{chosen_on}/score"] > found[None][f"{chosen_on}/score"]
    again = evaluate(tmp_path / "2" / "model", dataset, "dev", precision="float32")
    assert again["score"] == pytest.approx(found[2]["dev/score"], abs=1e-6)  # of dev rows it is a sum of two logits
    lines = (tmp_path / "2" / "predictions" / "dev.jsonl").read_text().splitlines()
    assert len({json.loads(line)["prediction"] for line in lines}) > 1


@pytest.mark.parametrize("select", ["held-out", "refit", "dev"])
@pytest.mark.parametrize("task", ["cola", "stsb", "storycloze", "mrpc"])
def test_the_floor_is_what_is_left_of_a_fine_tune_without_its_network(
    task: str, select: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, network = encoded(tmp_path, task, n_train=1200, n_dev=60), pretrained(tmp_path / "model")
    settings = {"lr": 1e-6, "batch_size": 16, "epochs": 1, "precision": "float32", "select": select, "ngrams": 2}
    settings |= {"max_train_rows": 1100, "max_eval_rows": 50}
    monkeypatch.setattr(ngrams, "_SHARES", (Shares(0.0, 1.0),))
    monkeypatch.setattr(ngrams, "_SCALES", [np.float32(1)])
    job = finetune_job(task, network, dataset, tmp_path / "both", settings)
    result = finetuned(job)
    assert (result["network_weight"], result["ngrams_weight"]) == (0.0, 1.0)
    assert "network/dev/score" in result
    reader = DecoderReader(task_spec(task), MODEL.n_ctx, MODEL.n_vocab)
    config = FinetuneConfig(**job["finetune"])
    scores = score_ngrams(dataset, reader, EDGES, config, tmp_path, lambda: False)
    assert scores.keys() == {name for name in result if name.startswith(("dev/", "test/"))}
    for name, score in scores.items():
        assert result[name] == pytest.approx(score, abs=1e-5), name


def test_a_network_that_spoils_what_n_grams_tell_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of equal scores and losses the network stays; here its logits are noise that no weight of n-grams outweighs."""
    dataset, network = encoded(tmp_path, "sst2", n_train=400, n_dev=40), pretrained(tmp_path / "model")
    settings = {"lr": 1e-6, "batch_size": 16, "epochs": 1, "precision": "float32", "select": "held-out", "ngrams": 2}

    def chosen(name: str, noise: float) -> dict[str, float]:
        logits = BestEpoch.logits

        def noisy(monitor: BestEpoch, *asked: Any) -> list[NDArray[np.float32]]:
            draws = np.random.default_rng(0)
            return [row + draws.normal(0, noise, row.shape).astype(np.float32) for row in logits(monitor, *asked)]

        with monkeypatch.context() as patched:
            patched.setattr(BestEpoch, "logits", noisy)
            return dict(finetuned(finetune_job("sst2", network, dataset, tmp_path / name, settings)))

    assert chosen("noise", 1e4)["network_weight"] == 0.0
    assert chosen("still", 0.0)["network_weight"] == 1.0


@pytest.mark.parametrize("select", ["held-out", "refit", "dev"])
def test_weights_are_chosen_on_rows_that_no_layer_is_fitted_on_and_what_is_kept_has_them_all(
    select: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 160 rows 120 may be trained on, of which 20 are held out, but not where dev rows choose."""
    dataset, network = encoded(tmp_path, "sst2", n_train=160, n_dev=40), pretrained(tmp_path / "model")
    settings = {"lr": 1e-6, "batch_size": 16, "epochs": 1, "precision": "float32", "select": select, "ngrams": 2}
    fitted, chosen = list[set[str]](), set[str]()
    fit, logits = NGramFit.__init__, BestEpoch.logits

    def watched(self: NGramFit, spec: TaskSpec, rows: TaskRows, *others: Any) -> None:
        fitted.append(set(rows.names))
        fit(self, spec, rows, *others)

    def watching(monitor: BestEpoch, *asked: Any) -> Any:
        chosen.update(monitor.rows.names)
        return logits(monitor, *asked)

    monkeypatch.setattr(NGramFit, "__init__", watched)
    monkeypatch.setattr(BestEpoch, "logits", watching)
    job = finetune_job("sst2", network, dataset, tmp_path / "job", {**settings, "max_train_rows": 120})
    assert finetuned(job)["ngrams_weight"] > 0
    first, kept = fitted
    assert not first & chosen
    assert (len(first), len(chosen), len(kept)) == ((120, 40, 120) if select == "dev" else (100, 20, 120))
    assert kept == (first if select == "dev" else first | chosen)
    monkeypatch.undo()
    layer = Classifier.load(tmp_path / "job" / "model")[0].ngrams
    assert layer is not None
    reader = DecoderReader(task_spec("sst2"), MODEL.n_ctx, MODEL.n_vocab)
    train = TaskRows(reader, read_encoded(dataset, "train"), np.arange(160))
    known = {
        name: NGramFit(reader.spec, rows, EDGES, 2, lambda: False).layer(1.0).known
        for name, names in (("learnt", first), ("kept", kept))
        for rows in [TaskRows(reader, read_encoded(dataset, "train"), np.flatnonzero(np.isin(train.names, [*names])))]
    }
    assert torch.equal(layer.known, known["kept"])
    assert (layer.weight[layer.known].abs().sum(dim=1) > 0).all(), "those of held-out rows alone, too"
    assert (known["kept"] & ~known["learnt"]).any() == (select != "dev")


def rows_of_pieces(texts: list[list[int]]) -> TaskRows:
    """Rows of CoLA, right and wrong in turn."""
    examples = [EncodedExample((np.asarray(ids),), (), number % 2, "", "") for number, ids in enumerate(texts)]
    return TaskRows(DecoderReader(task_spec("cola"), 40, 50), examples, np.arange(len(texts)))


def logits_of_pieces(layer: NGrams, *ids: int) -> list[float]:
    told: torch.Tensor = layer(torch.tensor([[ids]]), torch.tensor([[len(ids) - 1]]))
    return [float(value) for value in told.flatten()]


def test_a_word_that_no_row_has_changes_no_logit() -> None:
    """Nor how much the others count; but for how long the text is, which is a feature of its own."""
    texts = [[1, 2, 3 + number % 4] for number in range(40)]
    layer = NGramFit(rows_of_pieces(texts).reader.spec, rows_of_pieces(texts), "3" * 50, 1, lambda: False).layer(1.0)
    layer.shared.zero_()
    assert logits_of_pieces(layer, 3, 9) == logits_of_pieces(layer, 3)
    assert logits_of_pieces(layer, 9, 11) == layer.bias.tolist()
    assert logits_of_pieces(layer, 3, 4) != logits_of_pieces(layer, 3)


@pytest.mark.parametrize(("n_rows", "known"), [(19, True), (20, False)])
def test_of_many_rows_words_of_a_single_one_are_left_out(
    n_rows: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ngrams, "_MANY", 20)
    rows = rows_of_pieces([[1, 5 + number] for number in range(n_rows - 2)] + [[1, 40], [2, 40]])
    layer = NGramFit(rows.reader.spec, rows, "3" * 50, 1, lambda: False).layer(1.0)
    assert [bool(layer.known[3 * piece]) for piece in (1, 40, 2, 5, 4 + n_rows - 2)] == [True, True, *[known] * 3]
    assert not layer.known[3 * 45]
    assert layer.rarity[40] == pytest.approx(1 + math.log((1 + n_rows) / 3))


def test_how_much_of_a_text_the_other_has_and_how_many_pieces_each() -> None:
    """Of the first text and of the second, which the delimiter, a 7, begins; pieces and words are one here."""
    layer = NGrams(1, 2, torch.full((50,), 3, dtype=torch.uint8), 7)
    layer.rarity[:-1] = 1.0
    layer.rarity[[7, 8 * 1_000_003 % 65_536]] = 0.0  # of the delimiter as a piece and as a word

    def common(*ids: int) -> list[float]:
        grams = layer.grams(torch.tensor([[ids]]), torch.tensor([[len(ids) - 1]]))
        return [float(value) for value in layer.common(grams)[0]]

    assert common(1, 2, 3, 7, 3, 1, 2) == pytest.approx([*[1.0] * 2, *[1.0] * 2, math.log(4), math.log(5)])
    assert common(1, 2, 3, 4, 7, 1) == pytest.approx([*[0.25] * 2, *[1.0] * 2, math.log(5), math.log(3)])
    assert common(1, 7, 2, 3, 1, 1) == pytest.approx([*[1.0] * 2, *[1 / 3] * 2, math.log(2), math.log(5)])
    assert common(1, 2, 7, 3) == pytest.approx([*[0.0] * 4, math.log(3), math.log(3)])
    layer.rarity[[1, 2 * 1_000_003 % 65_536]] = 2.0
    assert common(1, 2, 3, 7, 1, 4) == pytest.approx([*[2 / 4] * 2, *[2 / 3] * 2, math.log(4), math.log(4)])


def test_of_too_many_rows_as_many_are_fitted_as_words_and_n_grams_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 rows of 2 pieces and 2 marks: with pairs and words 3 * 240 = 720 of them, of which 241 may be: 20 rows."""
    rows = rows_of_pieces([[1, 2 + number % 40] for number in range(60)])
    assert rows.tokens == 240

    def fitted() -> NGramFit:
        return NGramFit(rows.reader.spec, rows, "3" * 50, 2, lambda: False)

    assert len(fitted()._labels) == 60
    monkeypatch.setattr(ngrams, "_MOST", 241)
    assert len(fitted()._labels) == 20
    assert torch.equal(fitted()._labels, fitted()._labels)
    monkeypatch.setattr(ngrams, "_MOST", 1)
    assert len(fitted()._labels) == 1
