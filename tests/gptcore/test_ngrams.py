"""n-grams beside a network: the logits of plain sums, the fit of scikit-learn, and a model that is kept with them."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from gptcore.evaluation.predict import evaluate
from gptcore.models.ngrams import NGrams
from gptcore.nlu.registry import task_spec
from gptcore.training.ngrams import fitted
from tests.gptcore.test_losses import batch, model
from tests.gptcore.tiny_tasks import MODEL, encoded, finetune_job, finetuned, pretrained, random_ngrams, task_rows


def plain_grams(ids: list[int], longest: int) -> set[int]:
    """The buckets of all runs of up to ``longest`` ids: base 1,000,003, modulo 2^31 - 1, then modulo 2^16."""
    found = set()
    for length in range(1, longest + 1):
        for start in range(len(ids) - length + 1):
            code = ids[start]
            for following in ids[start + 1 : start + length]:
                code = (code * 1_000_003 + following + 1) % (2**31 - 1)
            found.add(code % 65_536)
    return found


def plain_logits(layer: NGrams, ids: list[int]) -> torch.Tensor:
    grams = plain_grams(ids, layer.longest)
    length = math.sqrt(sum(float(layer.rarity[gram]) ** 2 for gram in grams))
    return layer.bias + sum(layer.rarity[gram] / length * layer.weight[gram] for gram in grams)


@pytest.mark.parametrize(("form", "n_sequences"), [("single", 1), ("pair", 2), ("choices", 4)])
def test_they_add_to_the_networks_logits_what_they_tell_of_each_sequence(form: str, n_sequences: int) -> None:
    network, (rows, tokens, ends) = model(form, clf_pdrop=0.0), batch(n_sequences)
    with torch.no_grad():
        alone, _ = network(tokens, ends)
        network.ngrams = random_ngrams(3, network.n_outputs)
        together, _ = network(tokens, ends)
    each = [[plain_logits(network.ngrams, ids) for ids in sequences] for sequences in rows]
    told = [torch.cat(logits) if form == "choices" else torch.stack(logits).sum(dim=0) for logits in each]
    torch.testing.assert_close(together - alone, torch.stack(told), rtol=1e-4, atol=1e-5)


def test_they_are_fitted_as_logistic_regression_is(tmp_path: Path) -> None:
    spec, folder = task_spec("sst2"), encoded(tmp_path, "sst2", n_train=200)
    rows = task_rows(spec, folder, "train", n_ctx=MODEL.n_ctx, n_vocab=MODEL.n_vocab, max_rows=None, seed=0)
    layer = fitted(spec, rows, 2, 0.5)
    sentences = []
    for number in range(len(rows)):
        part = rows.batch([number])
        sentences.append(part.tokens[0, 0, : int(part.clf_position) + 1].tolist())
    grams = [plain_grams(ids, 2) for ids in sentences]
    counts = Counter(gram for found in grams for gram in found)
    known = sorted(counts)
    features = np.zeros((len(rows), len(known)))
    for row, found in zip(features, grams, strict=True):
        for gram in found:
            row[known.index(gram)] = 1 + math.log((1 + len(rows)) / (1 + counts[gram]))
        row /= np.linalg.norm(row)
    # One vector for two classes has their difference, whose square is twice the sum of theirs.
    twin = LogisticRegression(C=2 / 0.5, tol=1e-8, max_iter=10_000).fit(features, rows.labels)
    with torch.no_grad():
        logits = torch.stack([plain_logits(layer, ids) for ids in sentences])
    told = torch.log_softmax(logits, dim=-1).numpy()
    np.testing.assert_allclose(told, twin.predict_log_proba(features), atol=5e-3)


@pytest.mark.parametrize("select", ["held-out", "refit", "dev"])
@pytest.mark.parametrize("task", ["sst2", "stsb", "storycloze"])
def test_a_network_that_has_learnt_nothing_answers_by_them(task: str, select: str, tmp_path: Path) -> None:
    dataset, network = encoded(tmp_path, task, n_train=160, n_dev=40), pretrained(tmp_path / "model")
    settings = {"lr": 1e-6, "batch_size": 16, "epochs": 1, "precision": "float32", "select": select}
    found = {}
    for ngrams in (None, 2):
        job = finetune_job(task, network, dataset, tmp_path / f"{ngrams}", {**settings, "ngrams": ngrams})
        found[ngrams] = finetuned(job)
    assert "ngrams_weight" not in found[None]
    assert found[2]["ngrams_weight"] > 0
    assert found[2]["dev/score"] > max(0.7, found[None]["dev/score"] + 0.1)
    chosen_on = "dev" if select == "dev" else "validation"
    assert found[2][f"{chosen_on}/score"] > found[None][f"{chosen_on}/score"]
    again = evaluate(tmp_path / "2" / "model", dataset, "dev", precision="float32")
    assert again["score"] == found[2]["dev/score"]
    lines = (tmp_path / "2" / "predictions" / "dev.jsonl").read_text().splitlines()
    assert len({json.loads(line)["prediction"] for line in lines}) > 1
