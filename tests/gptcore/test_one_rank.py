"""What one of many processes sends and holds, counted without the others, beside the same by hand."""

from __future__ import annotations

import pytest

from gptcore.config import ModelConfig
from tests.trials.one_rank import Case, simulate

D, LAYERS, V, T = 32, 3, 60, 16
MODEL = ModelConfig(n_vocab=V, n_ctx=T, n_layer=LAYERS, n_head=2, n_embd=D, n_inner=4 * D)
BLOCK = 12 * D * D + 13 * D  # matrices; biases and the two norms
WEIGHTS = LAYERS * BLOCK + (V + T) * D
NORMS_AND_MAP = 4 * (LAYERS * 12 + 2)  # a float32, or int32, a tensor


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_sharded_weights_travel_once_forward_blocks_again_backward_and_gradients_once(micro_batches: int) -> None:
    found = simulate(Case("", MODEL, 4, True, 2, micro_batches))
    assert found.calls["all-gather"] == micro_batches * (2 * LAYERS + 1)
    assert found.calls["reduce-scatter"] == micro_batches * (LAYERS + 1)
    assert found.sent["all-gather"] == micro_batches * 4 * (WEIGHTS + LAYERS * BLOCK)
    assert found.sent["reduce-scatter"] == micro_batches * 4 * WEIGHTS
    assert found.sent["all-reduce"] == NORMS_AND_MAP


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_whole_gradients_travel_once_an_update(micro_batches: int) -> None:
    found = simulate(Case("", MODEL, 64, False, 2, micro_batches))
    assert found.sent == {"all-reduce": 4 * WEIGHTS + NORMS_AND_MAP}
    states = 4 * 4 * WEIGHTS  # weights, gradients, and what Adam holds
    assert found.peak >= states
