"""Spans told by words: the marks and windows written out, padding, and a question's words that point to an answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from gptcore.models.encoder import draw_weights
from gptcore.models.span_reader import SpanReader
from gptcore.nlu.encoded import marked_examples
from gptcore.nlu.examples import Annotation, Example
from gptcore.nlu.rows import Window, words_of_passages
from gptcore.nlu.word_features import N_FEATURES, N_ROWS, word_features
from gptcore.objectives.losses import span_loss
from gptcore.text.wordpiece import WordPieceTokenizer

WIDTH = 6


@pytest.fixture(scope="module")
def pieces() -> WordPieceTokenizer:
    return WordPieceTokenizer.train(["dora saw, 3.50 anna"] * 3, 30)


def reader(width: int = WIDTH) -> tuple[SpanReader, torch.nn.Linear]:
    draws = torch.Generator().manual_seed(1)
    made, layer = SpanReader(width, 2).eval(), torch.nn.Linear(width, 2)
    draw_weights(made, 3 / width, draws)
    draw_weights(layer, 3 / width, draws)
    return made, layer


def given() -> tuple[Tensor, Tensor, Tensor]:
    """States, ids and features of [CLS] 7 8 [SEP] 9 7 9 9 9 9 8 [SEP] and padding."""
    draws = torch.Generator().manual_seed(2)
    tokens = torch.tensor([[2, 7, 8, 3, 9, 7, 9, 9, 9, 9, 8, 3, 0]])
    words = torch.zeros(1, 13, N_FEATURES, dtype=torch.long)
    words[0, 4:11] = torch.randint(1, N_ROWS, (7, N_FEATURES), generator=draws)
    return torch.randn(1, 13, WIDTH, generator=draws), tokens, words


def written_out(model: SpanReader, layer: torch.nn.Linear, states: Tensor, tokens: Tensor, words: Tensor) -> Tensor:
    """(T, 2) the scores of one sequence, a position at a time."""
    n, question, passage = len(tokens), range(4), range(4, 11)
    tells = states @ model.tells.weight.T + model.tells.bias
    met = [0.0] * n
    for at in passage:
        met[at] = max([float(torch.sigmoid(tells[q, 0])) for q in question if tokens[q] == tokens[at]], default=0.0)
    around = []
    for reach in (5, 11, 31):
        found = list(met)
        for _ in range(2):
            near = {at: found[max(0, at - reach // 2) : at + reach // 2 + 1] for at in passage}
            found = [sum(near.get(at, ())) / reach for at in range(n)]
        around.append([value * reach**0.5 for value in found])
    marks = torch.tensor([[float(value > 0) for value in met], met, *around]).T
    asked = torch.softmax(tells[:4, 1], 0) @ states[:4]
    gate = 2 * torch.sigmoid(model.asks.weight @ asked + model.asks.bias)
    looks = torch.stack([model.looks.features(each).sum(0) / N_FEATURES**0.5 for each in words])
    x = torch.relu(torch.cat([states, looks, marks], 1) @ model.each.weight.T + model.each.bias) * gate
    for norm, window, reach in zip(model.norms, model.windows, (1, 2, 4, 8), strict=True):
        seen = {at: norm(x[at]) for at in passage}
        nothing = torch.zeros(WIDTH)
        near = [torch.cat([seen.get(at + by, nothing) for by in (-reach, 0, reach)]) for at in range(n)]
        x = x + torch.relu(torch.stack(near) @ window.weight.T + window.bias)
    scores = x @ layer.weight.T + layer.bias
    scores[[at for at in range(n) if at not in (0, *passage)]] = -torch.inf
    return scores


@torch.no_grad()
def test_scores_are_those_of_the_formulas_written_out() -> None:
    model, layer = reader()
    states, tokens, words = given()
    found = model(states, tokens, words, layer, 0.0)[0]
    torch.testing.assert_close(found, written_out(model, layer, states[0], tokens[0], words[0]))
    longer = [torch.cat([part, part[:, -1:]], 1) for part in (states, tokens, words)]
    torch.testing.assert_close(model(*longer, layer, 0.0)[0, :13], found)


def test_where_the_question_points_is_learnt_and_found_elsewhere() -> None:
    """The answer stands behind the one word of the passage that the question has; states say nothing of it."""
    model, layer = reader(32)
    rng = np.random.default_rng(0)

    def rows(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        tokens, words = torch.zeros(n, 16, dtype=torch.long), torch.zeros(n, 16, N_FEATURES, dtype=torch.long)
        places = torch.zeros(n, 2, dtype=torch.long)
        for row in range(n):
            passage = rng.permutation(np.arange(10, 60))[:12]
            at = int(rng.integers(0, 11))
            tokens[row, :4] = torch.tensor([2, 5, passage[at], 3])
            tokens[row, 4:] = torch.from_numpy(passage)
            words[row, 4:] = 1
            places[row] = 4 + at + 1
        return torch.zeros(n, 16, 32), tokens, words, places

    optimizer = torch.optim.Adam([*model.parameters(), *layer.parameters()], 1e-2)
    for _ in range(150):
        *batch, places = rows(16)
        optimizer.zero_grad()
        span_loss(model(*batch, layer, 0.0), places).backward()
        optimizer.step()
    *batch, places = rows(200)
    with torch.no_grad():
        right = (model(*batch, layer, 0.0).argmax(1) == places).all(1).float().mean()
    assert right > 0.9


def test_each_piece_of_a_passage_has_the_look_of_its_word(pieces: WordPieceTokenizer) -> None:
    text = "dora saw, 3.50 anna"
    example = Example(("who", text), (), None, "", "r", (Annotation(0, 4),))
    (marked,) = marked_examples(pieces, [example])
    n = len(marked.piece_starts)
    found = words_of_passages([Window(0, 1, n, 3)], [marked], n + 5)[0]
    assert not found[:3].any()
    assert not found[2 + n :].any()
    for piece in range(1, n):
        (word,) = [w for w in ("dora", "saw", ",", "3.50", "anna") if _holds(text, w, marked.piece_starts[piece])]
        assert tuple(found[2 + piece]) == word_features(word)


def _holds(text: str, word: str, place: int) -> bool:
    return text.index(word) <= place < text.index(word) + len(word)
