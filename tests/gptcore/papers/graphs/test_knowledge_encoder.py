"""The network that fuses words and entities, and its objective, each against a plain twin."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.models.classifier import EncoderClassificationModel, Head
from gptcore.models.encoder import Encoder
from gptcore.models.encoder_parts import FeedForward, SelfAttention
from gptcore.models.network import load_model
from gptcore.objectives.losses import IGNORE_INDEX
from gptcore.papers.graphs.config import KnowledgeEncoderConfig
from gptcore.papers.graphs.ernie import CountedMentions, entity_losses
from gptcore.papers.graphs.knowledge_encoder import EntityLayer, KnowledgeEncoder
from gptcore.papers.graphs.masked_entities import EntitySequences
from tests.expected import expected as table_of
from tests.gptcore.sentence_shards import N_VOCAB, gazetteer

CONFIG = KnowledgeEncoderConfig(
    n_vocab=N_VOCAB,
    n_ctx=12,
    n_layer=3,
    n_head=2,
    n_embd=8,
    n_inner=16,
    n_fused=2,
    n_embd_entities=6,
    n_head_entities=3,
    n_entities=5,
    n_names=5,
    n_name_pieces=7,
    init_std=0.4,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    resid_pdrop=0.0,
)
NAMES = [[5], [6], [7], [8, 9], [12, 13]]


@pytest.fixture
def network() -> KnowledgeEncoder:
    model = KnowledgeEncoder(CONFIG, torch.Generator().manual_seed(1))
    model.know(torch.randn(5, 6, generator=torch.Generator().manual_seed(2)), gazetteer(NAMES), "here")
    return model.eval()


def plain_attention(part: SelfAttention, x: Tensor, seen: Sequence[bool]) -> Tensor:
    """One sequence [T, D], head by head."""
    q, k, v = part.qkv(x).chunk(3, dim=-1)
    heads = []
    size = x.shape[1] // part.n_head
    for head in range(part.n_head):
        its = slice(head * size, (head + 1) * size)
        scores = q[:, its] @ k[:, its].T / size**0.5
        scores[:, [place for place, is_seen in enumerate(seen) if not is_seen]] = -torch.inf
        heads.append(scores.softmax(-1) @ v[:, its])
    return part.norm(x + part.projection(torch.cat(heads, dim=-1)))  # type: ignore[no-any-return]


def plain_encode(model: KnowledgeEncoder, tokens: Tensor, entities: Sequence[int]) -> Tensor:
    """One sequence without padding, entity by entity (equations 3 to 5)."""
    x = model.embeddings(tokens[None], None)[0]
    places = [place for place, entity in enumerate(entities) if entity]
    e = torch.stack([model.get_buffer("vectors")[entities[place]] for place in places]) if places else None
    for layer, (attention, feed_forward) in enumerate(zip(model.attention, model.feed_forward, strict=True)):
        assert isinstance(attention, SelfAttention)
        assert isinstance(feed_forward, FeedForward)
        x = plain_attention(attention, x, [True] * len(x))
        number = layer - (CONFIG.n_layer - CONFIG.fused)
        fusing = model.fusion[number] if number >= 0 else None
        if fusing is not None and e is not None:
            assert isinstance(fusing, EntityLayer)
            e = plain_attention(fusing.attention, e, [True] * len(places))
        words, others = [], []
        for place, word in enumerate(x):
            inner = feed_forward.inner.weight @ word + feed_forward.inner.bias
            if fusing is not None and e is not None and place in places:
                assert isinstance(fusing, EntityLayer)
                its = e[places.index(place)]
                inner = inner + fusing.inner.weight @ its
                others.append(fusing.norm(its + fusing.projection(F.gelu(inner))))
            words.append(feed_forward.norm(word + feed_forward.projection(F.gelu(inner))))
        x = torch.stack(words)
        e = torch.stack(others) if others else e
    return x


def batch_of(lengths: Sequence[int], entities: Sequence[dict[int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    draws = torch.Generator().manual_seed(4)
    width = max(lengths)
    tokens = torch.randint(4, N_VOCAB, (len(lengths), width), generator=draws)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    given = torch.zeros_like(tokens)
    for row, its in enumerate(entities):
        for place, entity in its.items():
            given[row, place] = entity
    return tokens, mask, given


def test_words_and_entities_are_fused_as_in_a_plain_twin(network: KnowledgeEncoder) -> None:
    lengths, entities = (7, 4, 6, 5), ({0: 1, 3: 2, 6: 2}, {2: 5}, {}, {0: 3, 1: 4})
    tokens, mask, given = batch_of(lengths, entities)
    found = network.encode(tokens, None, mask, given)
    for row, length in enumerate(lengths):
        expected = plain_encode(network, tokens[row, :length], given[row, :length].tolist())
        assert torch.allclose(found[row, :length], expected, atol=1e-5)
    tokens.requires_grad_(False)
    leaves = list(network.parameters())
    ours = torch.autograd.grad(
        sum((found[row, :length] ** 3).sum() for row, length in enumerate(lengths)), leaves, allow_unused=True
    )
    plain = sum(
        (plain_encode(network, tokens[row, :length], given[row, :length].tolist()) ** 3).sum()
        for row, length in enumerate(lengths)
    )
    theirs = torch.autograd.grad(plain, leaves, allow_unused=True)
    for mine, twin in zip(ours, theirs, strict=True):
        assert (mine is None) == (twin is None) or not (mine if twin is None else twin).any()
        if mine is not None and twin is not None:
            assert torch.allclose(mine, twin, atol=1e-3, rtol=1e-3)


def test_without_entities_it_is_the_bert_whose_weights_it_has(network: KnowledgeEncoder) -> None:
    bert = Encoder(CONFIG.without_entities, torch.Generator().manual_seed(9)).eval()
    network.go_on_from(bert.state_dict(), "here")
    tokens, mask, given = batch_of((7, 4), ({0: 1}, {}))
    nothing = torch.zeros_like(given)
    assert torch.equal(network(tokens, mask=mask, entities=nothing), bert(tokens, mask=mask))
    one = network(tokens, mask=mask, entities=given)
    assert not torch.allclose(one[0], bert(tokens, mask=mask)[0], atol=1e-3)
    assert torch.allclose(one[1, :4], bert(tokens, mask=mask)[1, :4], atol=1e-6)  # a row without any beside one with
    unlinked = network.adapt(linked=False)
    assert torch.equal(unlinked.encode(tokens, None, mask), network.encode(tokens, None, mask, nothing))


def test_its_folder_has_all_that_finds_entities(network: KnowledgeEncoder, tmp_path: Path) -> None:
    network.save(tmp_path)
    read = load_model(str(tmp_path))
    tokens = torch.tensor([[2, 5, 8, 9, 10, 12, 13, 6], [4, 4, 4, 4, 4, 4, 4, 4]])
    assert network.link(tokens).tolist() == [[0, 1, 0, 0, 0, 5, 0, 2], [0] * 8]  # 8, 9 goes on with 10, a tail
    assert torch.equal(read(tokens), network(tokens))
    assert torch.equal(network(tokens), network(tokens, entities=network.link(tokens)))
    copy = network.adapt(n_transfer=1, generator=torch.Generator().manual_seed(5))
    assert torch.equal(copy.link(tokens), network.link(tokens))
    assert torch.equal(copy.get_buffer("vectors"), network.get_buffer("vectors"))
    names = {name for name, tensor in copy.state_dict().items() if torch.equal(tensor, network.state_dict()[name])}
    drawn = {name for name, _ in copy.named_parameters()} - names
    assert all(name.split(".")[0] in ("attention", "feed_forward", "fusion", "pooler") for name in drawn)
    assert any(name.startswith("fusion.0") for name in drawn)
    levels = network.parameters_by_depth()
    assert sum(map(len, levels)) == len(list(network.parameters()))
    assert {id(p) for level in levels for p in level} == {id(p) for p in network.parameters()}


def test_entities_are_told_from_all_of_the_update_as_in_a_plain_twin(network: KnowledgeEncoder) -> None:
    tokens, mask, given = batch_of((6, 5), ({1: 1, 4: 3}, {0: 3}))
    batch = {
        "tokens": tokens,
        "segments": torch.zeros_like(tokens),
        "mask": mask.long(),
        "places": torch.tensor([2, 7]),
        "targets": torch.tensor([4, 5]),
        "labels": torch.tensor([0, 1]),
        "entities": given,
        "mentions": torch.tensor([1, 4, 6]),
        "mentioned": torch.tensor([0, 1, 1]),
        "candidates": torch.tensor([1, 3, 5]),  # 5 stands in another micro-batch
        "word_weight": torch.tensor(1 / 4),
        "pair_weight": torch.tensor(1 / 3),
        "entity_weight": torch.tensor(1 / 5),
    }
    loss, metrics = entity_losses(network, 0.5, batch)
    states = [plain_encode(network, tokens[row, :n], given[row, :n].tolist()) for row, n in enumerate((6, 5))]
    head = network.entity_head
    assert isinstance(head, nn.Linear)
    vectors = network.get_buffer("vectors")
    expected = 0.0
    for row, place, right in ((0, 1, 0), (0, 4, 1), (1, 0, 1)):
        point = head.weight @ states[row][place] + head.bias
        scores = torch.stack([point @ vectors[entity] for entity in (1, 3, 5)])
        expected = expected - scores.log_softmax(0)[right] / 5
    assert torch.allclose(metrics["entity_loss"], torch.as_tensor(expected), atol=1e-5)
    others = metrics["word_loss"] + metrics["pair_loss"]
    assert torch.allclose(loss, others + 0.5 * metrics["entity_loss"])
    none = {**batch, "entities": torch.zeros_like(given), "candidates": torch.zeros(0, dtype=torch.int64)}
    none |= {name: torch.zeros(0, dtype=torch.int64) for name in ("mentions", "mentioned")}
    loss, metrics = entity_losses(network, 1.0, none)
    assert metrics["entity_loss"] == 0
    loss.backward()


def test_a_classifier_reads_the_entities_that_its_texts_mention(network: KnowledgeEncoder) -> None:
    tuned = EncoderClassificationModel(network.adapt(), Head("single", 3, 0.0), torch.Generator().manual_seed(1)).eval()
    blind = EncoderClassificationModel(
        network.adapt(linked=False), Head("single", 3, 0.0), torch.Generator().manual_seed(1)
    )
    blind.load_state_dict(tuned.state_dict())
    tokens = torch.tensor([[[2, 5, 4, 6, 3]], [[2, 14, 4, 15, 3]]])
    place = torch.zeros(2, 1, dtype=torch.int64)
    (ours, _), (theirs, _) = tuned(tokens, place), blind.eval()(tokens, place)
    assert not torch.allclose(ours[0], theirs[0], atol=1e-4)
    assert torch.allclose(ours[1], theirs[1], atol=1e-6)


def test_settings_that_do_not_fit_are_refused() -> None:
    for changes, words in table_of(__file__, "test_settings_that_do_not_fit_are_refused"):
        with pytest.raises(InputError, match=words):
            dataclasses.replace(CONFIG, **changes)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"its name_pieces have the shape \[7\], expected \[9\]"):
        KnowledgeEncoder(dataclasses.replace(CONFIG, n_name_pieces=9)).know(torch.zeros(5, 6), gazetteer(NAMES), "here")


def test_each_entity_that_is_told_weighs_alike_and_every_mention_is_counted() -> None:
    told = SimpleNamespace(told=np.array([0, 1, 2, 1, 0]))
    batch = SimpleNamespace(labels=np.array([0, IGNORE_INDEX]), mask=np.ones((2, 3)))
    found = EntitySequences(*cast(Any, (batch, SimpleNamespace(chosen=np.eye(2, 3)), None, told)))
    assert found.counts() == {"word_weight": 2, "pair_weight": 1, "token_weight": 6, "entity_weight": 3}
    micro = {"targets": torch.zeros(2), "labels": torch.tensor([0]), "mask": torch.ones(1, 3)}
    counted = CountedMentions([{**micro, "mentioned": torch.zeros(n)} for n in (2, 3)])
    assert len(list(counted)) == 2
    sums = dict.fromkeys(("word_loss", "word_accuracy", "pair_loss", "pair_accuracy", "entity_loss"), 10.0)
    scores = counted.scores({**sums, "entity_accuracy": 4.0})
    assert (scores["mentions"], scores["entity_loss"], scores["entity_accuracy"]) == (5, 2.0, 0.8)
