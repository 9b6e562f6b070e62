"""The 117M decoders against transformers' ports: logits, language-model loss, every gradient (eval mode).

In eval mode only: transformers drops the sum of token and position, GPT-1's release its whole embedding table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from gptcore import GPT, ModelConfig
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.models.files.folder import BLOCK_PARTS
from gptcore.models.incremental import open_reader
from gptcore.objectives.losses import fused_language_model_loss, language_model_loss

AGREEMENT = 1e-4
"""Largest relative difference, of norms and of the largest element, in float32."""


@dataclass(frozen=True)
class Twins:
    """Our network and transformers' with the same random weights, without a copy where the layouts agree."""

    ours: GPT
    theirs: transformers.OpenAIGPTLMHeadModel | transformers.GPT2LMHeadModel

    def gradients(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """(our name, our gradient, their gradient in our layout) of every parameter of either network."""
        mine, its = dict(self.ours.named_parameters()), dict(self.theirs.named_parameters())
        for name, other in names(self.ours.config).items():
            gradient, expected = mine.pop(name).grad, its.pop(other).grad
            assert gradient is not None
            yield name, gradient, expected.t() if turned(other, expected) else expected
        assert not mine
        assert not its


CONFIGS = {"gpt": ModelConfig(), "gpt2": ModelConfig(n_vocab=50_257, n_ctx=1024, norm_first=True)}
PARAMETERS = {"gpt": 116_534_784, "gpt2": 124_439_808}


def names(config: ModelConfig) -> dict[str, str]:
    """Our parameter names -> transformers'."""
    tokens, positions = ("wte", "wpe") if config.norm_first else ("tokens_embed", "positions_embed")
    embeddings = {"tokens.weight": f"{tokens}.weight", "positions.weight": f"{positions}.weight"}
    blocks = {f"blocks.{n}.{a}": f"h.{n}.{b}" for n in range(config.n_layer) for a, b in BLOCK_PARTS.items()}
    norm = {f"norm.{part}": f"ln_f.{part}" for part in ("weight", "bias")} if config.norm_first else {}
    return {name: f"transformer.{other}" for name, other in (embeddings | blocks | norm).items()}


def turned(name: str, value: Tensor) -> bool:
    """Matrices of blocks stand as [n_in, n_out] there."""
    return value.ndim == 2 and ".h." in name


@pytest.fixture(scope="module", params=CONFIGS)
def twins(request: pytest.FixtureRequest) -> Iterator[Twins]:
    config = CONFIGS[request.param]
    threads = torch.get_num_threads()
    torch.set_num_threads(min(2, threads))
    theirs = (
        transformers.GPT2LMHeadModel(transformers.GPT2Config())
        if config.norm_first
        else transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig())
    ).eval()
    with torch.device("meta"):
        ours = GPT(config).eval()
    ours = ours.to_empty(device="cpu")
    draws = torch.Generator().manual_seed(0)
    parameters = dict(theirs.named_parameters())
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            gain = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            parameter.normal_(gain, 0.02, generator=draws)  # biases and gains too, or they would go untested
            other = names(config)[name]
            parameters[other].copy_(parameter.t() if turned(other, parameters[other]) else parameter)
    yield Twins(ours, theirs)
    torch.set_num_threads(threads)


def ids(*shape: int) -> Tensor:
    return torch.randint(1, ModelConfig.n_vocab, shape, generator=torch.Generator().manual_seed(sum(shape)))


def assert_agree(found: Tensor, expected: Tensor, what: str) -> None:
    assert found.shape == expected.shape, what
    difference = found - expected
    assert difference.norm() <= AGREEMENT * expected.norm(), what
    assert difference.abs().max() <= AGREEMENT * expected.abs().max(), what


def assert_parity(twins: Twins, tokens: Tensor, targets: Tensor, mask: Tensor | None = None) -> None:
    """Logits, loss and gradients.

    :param tokens: [B, T]; targets: [B, T], IGNORE_INDEX where there is none.
    :param mask: [B, T], 1 for real tokens; transformers alone is told of it, ours has nothing to be told.
    """
    twins.ours.zero_grad(set_to_none=True)
    twins.theirs.zero_grad(set_to_none=True)
    expected = twins.theirs(tokens, attention_mask=mask).logits  # (B, T, V)
    loss = F.cross_entropy(expected.flatten(0, 1), targets.flatten(), ignore_index=IGNORE_INDEX)
    loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask.bool()
    with torch.no_grad():
        logits = twins.ours(tokens)
        assert_agree(logits[real], expected[real], "logits")
        assert_agree(language_model_loss(logits, targets), loss, "loss")
        del logits, expected
    table = twins.ours.table()
    fused = fused_language_model_loss(twins.ours.states(tokens, table), table, targets)  # what training uses
    fused.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
    assert_agree(fused.detach(), loss.detach(), "fused loss")
    for name, gradient, wanted in twins.gradients():
        assert_agree(gradient, wanted, name)


def next_tokens(tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    """[B, T]: the next token, IGNORE_INDEX at the end and where it is padding."""
    following = F.pad(tokens[:, 1:], (0, 1), value=IGNORE_INDEX)
    return following if mask is None else following.masked_fill(F.pad(mask[:, 1:], (0, 1)) == 0, IGNORE_INDEX)


def test_size_and_names(twins: Twins) -> None:
    config = twins.ours.config
    family = "gpt2" if config.norm_first else "gpt"
    assert twins.ours.num_parameters == twins.theirs.num_parameters() == PARAMETERS[family]
    assert set(names(config)) == {name for name, _ in twins.ours.named_parameters()}
    assert set(names(config).values()) == {name for name, _ in twins.theirs.named_parameters()}


def test_a_token_at_a_time_with_a_cache(twins: Twins) -> None:
    """Text is generated like this: a prompt at once, then each token behind what is kept of those before it."""
    tokens, prompt = ids(2, 24), 19
    reader = open_reader(twins.ours, batch=2)
    with torch.no_grad():
        theirs = twins.theirs(tokens[:, :prompt], use_cache=True)
        kept = getattr(theirs, "past_key_values", None)  # transformers' GPT-1 has no cache
        for place in range(prompt, tokens.shape[1] + 1):
            new = tokens[:, :prompt] if place == prompt else tokens[:, place - 1 : place]
            if place > prompt and kept is not None:
                theirs = twins.theirs(new, past_key_values=kept, use_cache=True)
            elif place > prompt:
                theirs = twins.theirs(tokens[:, :place])
            assert_agree(reader.feed(new.tolist()), theirs.logits[:, -1], f"logits behind {place} tokens")


def test_right_padding(twins: Twins) -> None:
    lengths = torch.tensor([24, 9, 1])
    mask = (torch.arange(24) < lengths[:, None]).long()
    tokens = ids(3, 24) * mask  # padded with id 0
    assert_parity(twins, tokens, next_tokens(tokens, mask), mask)


def test_length_1(twins: Twins) -> None:
    assert_parity(twins, ids(1, 1), ids(1, 1) + 1)


def test_the_full_context(twins: Twins) -> None:
    """Logits and loss; what a position gives back is compared on short texts, as it costs three times as much here."""
    tokens = ids(1, twins.ours.config.n_ctx)
    with torch.no_grad():
        expected, logits = twins.theirs(tokens).logits, twins.ours(tokens)
        assert_agree(logits, expected, "logits")
        loss = F.cross_entropy(expected[0, :-1], tokens[0, 1:])
        assert_agree(language_model_loss(logits, next_tokens(tokens)), loss, "loss")


def test_the_loss_is_the_one_transformers_reports(twins: Twins) -> None:
    tokens = ids(2, 16)
    with torch.no_grad():
        expected = twins.theirs(tokens, labels=tokens).loss
        assert_agree(language_model_loss(twins.ours(tokens), next_tokens(tokens)), expected, "loss")
