"""Entities beside words: names found in token ids, mentions beside shards, what is hidden of them, and the network that
fuses both, each against a plain twin.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gptcore.config import KnowledgeEncoderConfig
from gptcore.data.entity_masking import mask_entities
from gptcore.data.mentions import Mentions
from gptcore.data.sentence_pairs import SentencePairs
from gptcore.data.shards import Shards
from gptcore.errors import InputError
from gptcore.knowledge.entities import Entities
from gptcore.knowledge.gazetteer import Gazetteer
from gptcore.knowledge.graph import KnowledgeGraph
from gptcore.models.build import load_model
from gptcore.models.encoder import Encoder
from gptcore.models.encoder_head import EncoderClassificationModel
from gptcore.models.encoder_parts import FeedForward, SelfAttention
from gptcore.models.knowledge_encoder import EntityLayer, KnowledgeEncoder
from gptcore.storyworld.chronicle import write_chronicle
from gptcore.storyworld.formats import Writer
from gptcore.storyworld.knowledge import GRAPH, facts
from gptcore.text.wordpiece import WordPieceTokenizer
from gptcore.training.entities import entities_objective
from tests.gptcore.sentence_shards import FIRST, sentence_shards, table

N_VOCAB = 24
TAILS = (9, 10, 11)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- names in token ids


def gazetteer(names: Sequence[Sequence[int]], n_vocab: int = N_VOCAB, tails: Sequence[int] = TAILS) -> Gazetteer:
    """Each name is of the entity of its place."""
    tail = np.isin(np.arange(n_vocab), tails)
    pieces = np.array([piece for name in names for piece in name], np.int64)
    return Gazetteer(pieces, np.cumsum([len(name) for name in names]), np.arange(len(names)), tail)


def plain_find(names: Sequence[Sequence[int]], row: Sequence[int]) -> list[int]:
    """At each word's beginning the longest name that a word's end follows, from the left."""
    found, at = [0] * len(row), 0
    while at < len(row):
        fits = [
            (len(name), -number)
            for number, name in enumerate(names)
            if list(row[at : at + len(name)]) == list(name)
            and row[at] not in TAILS
            and (at + len(name) == len(row) or row[at + len(name)] not in TAILS)
        ]
        if not fits:
            at += 1
            continue
        size, number = max(fits)
        found[at] = 1 - number
        at += size
    return found


names_of = st.lists(st.lists(st.integers(4, 12), min_size=1, max_size=4), min_size=1, max_size=8, unique_by=tuple)


@given(
    names_of,
    st.integers(1, 3).flatmap(
        lambda n: st.lists(st.lists(st.integers(4, 12), min_size=9, max_size=9), min_size=n, max_size=n)
    ),
)
@settings(max_examples=300, deadline=None)
def test_names_are_found_as_a_plain_search_finds_them(names: list[list[int]], rows: list[list[int]]) -> None:
    found = gazetteer(names).find(np.array(rows))
    assert found.tolist() == [plain_find(names, row) for row in rows]


VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "ann",
    "##a",
    "bar",
    "##low",
    "the",
    "of",
    "new",
    "york",
    "us",
]


def word_pieces(folder: Path) -> WordPieceTokenizer:
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return WordPieceTokenizer.load(folder)  # type: ignore[return-value]


def graph_of(rows: Sequence[tuple[str, str]], labels: dict[str, tuple[str, ...]]) -> KnowledgeGraph:
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    numbers = [(names.index(head), 0, names.index(tail)) for head, tail in rows]
    return KnowledgeGraph(names, ("r",), {"train": np.array(numbers, np.int64)}, labels)


def test_labels_name_entities_and_the_one_of_most_facts_has_a_shared_name(tmp_path: Path) -> None:
    tokenizer = word_pieces(tmp_path / "v")
    labels = {"Q1": ("New York", "NY", "the"), "Q2": ("York", "US"), "Q3": ("York",), "Q4": ("Zzyzx",)}
    rows = [("Q1", "Q3"), ("Q3", "anna_barlow"), ("Q3", "Q4"), ("Q2", "Q4"), ("anna_barlow", "Q4")]
    graph = graph_of(rows, labels)
    found = Gazetteer.of(graph, tokenizer)
    text = "The new York of Anna Barlow us ann York"
    [linked] = found.find(np.array([tokenizer.encode(text)]))
    at = {place: graph.entities[number - 1] for place, number in enumerate(linked.tolist()) if number}
    # [the, new, york, of, ann, ##a, bar, ##low, us, ann, york]
    assert at == {1: "Q1", 4: "anna_barlow", 10: "Q3"}
    with pytest.raises(InputError, match="none of its 1 entities has a name"):
        Gazetteer.of(graph_of([("Q4", "Q4")], labels), tokenizer)


def test_a_chronicle_speaks_of_its_graphs_people_where_the_search_finds_them(tmp_path: Path) -> None:
    """Every full name in the text is a mention, and no other stretch is one of a person."""
    shelf = Writer(tmp_path, 42)
    write_chronicle(shelf, shelf.rng(GRAPH))
    people = {head for head, relation, _ in facts(shelf.rng(GRAPH)) if relation == "lives_in"}
    text = (tmp_path / "year-07.txt").read_text()
    for sign in ".,":
        text = text.replace(sign, f" {sign}")
    words = text.split()
    known = [person.split() for person in sorted(people)]
    ids = {word: number for number, word in enumerate(dict.fromkeys([*words, *(w for name in known for w in name)]))}
    names = [[ids[word] for word in name] for name in known]
    [found] = gazetteer(names, len(ids), ()).find(np.array([[ids[word] for word in words]]))
    mentioned = [" ".join(known[number - 1]) for number in found.tolist() if number]
    pairs = [f"{a} {b}" for a, b in itertools.pairwise(words)]
    assert mentioned == [pair for pair in pairs if pair in people]
    assert len(mentioned) > 300


# --- mentions beside shards


def test_mentions_go_with_their_tokens_into_sequences(tmp_path: Path) -> None:
    """Each token stands once in these shards, so that a sequence's entities can be told from its tokens."""
    shards, _ = sentence_shards(tmp_path / "s", [[5, 7, 3, 9], [4, 4], [12]])
    dense = [np.where(shards.tokens(row) % 3 == 0, shards.tokens(row).astype(np.int64), 0) for row in range(3)]
    dense = [np.where(shards.tokens(row) >= FIRST, its, 0) for row, its in enumerate(dense)]
    mentions = Mentions.of(dense)
    mentions.save(tmp_path)
    linked = Shards(tmp_path / "s", Mentions.read(tmp_path))
    for pairs in ("none", "nsp", "sop"):
        plain, ours = (SentencePairs(its, table(its.n_vocab), 16, pairs, 3) for its in (shards, linked))
        expected, found = plain.batch(np.arange(40)), ours.batch(np.arange(40))
        assert expected.entities is None
        assert found.entities is not None
        for name in ("tokens", "segments", "mask", "labels"):
            assert np.array_equal(getattr(expected, name), getattr(found, name))
        tokens = found.tokens
        assert np.array_equal(found.entities, np.where((tokens % 3 == 0) & (tokens >= FIRST), tokens, 0))
    with pytest.raises(InputError, match=r"mentions.safetensors: cannot be read"):
        Mentions.read(tmp_path / "s")


def test_entities_are_replaced_hidden_and_kept_in_the_papers_shares() -> None:
    draws = np.random.default_rng(0)
    entities = np.where(draws.random((400, 50)) < 0.5, draws.integers(1, 30, (400, 50)), 0)
    found = mask_entities(entities, np.arange(400), 7)
    there = entities > 0
    n = there.sum()
    assert found.candidates.tolist() == sorted(set(entities[there].tolist()))
    assert (found.candidates[found.told[there] - 1] == entities[there]).all()
    assert not found.told[~there].any()
    assert not found.seen[~there].any()
    hidden, other = (found.seen[there] == 0), (found.seen[there] != entities[there])
    assert abs(hidden.mean() - 0.15) < 4 * np.sqrt(0.15 * 0.85 / n)
    expected = 0.05 * 28 / 29  # a random one of 29 may be the same
    assert abs((other & ~hidden).mean() - expected) < 4 * np.sqrt(expected / n)
    again = mask_entities(entities[100:], np.arange(100, 400), 7)  # of a part of the batch: its own candidates
    assert np.array_equal(again.seen == 0, found.seen[100:] == 0)
    nothing = mask_entities(np.zeros((2, 5), np.int64), np.arange(2), 7)
    assert not nothing.seen.any()
    assert len(nothing.candidates) == 0


# --- the network

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
    network.fill_words(bert.state_dict(), "here")
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
    loss, metrics = entities_objective(network, 0.5)(batch)
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
    loss, metrics = entities_objective(network, 1.0)(none)
    assert metrics["entity_loss"] == 0
    loss.backward()


def test_a_classifier_reads_the_entities_that_its_texts_mention(network: KnowledgeEncoder) -> None:
    tuned = EncoderClassificationModel(network.adapt(), "single", 3, 0.0, torch.Generator().manual_seed(1)).eval()
    blind = EncoderClassificationModel(network.adapt(linked=False), "single", 3, 0.0, torch.Generator().manual_seed(1))
    blind.load_state_dict(tuned.state_dict())
    tokens = torch.tensor([[[2, 5, 4, 6, 3]], [[2, 14, 4, 15, 3]]])
    place = torch.zeros(2, 1, dtype=torch.int64)
    (ours, _), (theirs, _) = tuned(tokens, place), blind.eval()(tokens, place)
    assert not torch.allclose(ours[0], theirs[0], atol=1e-4)
    assert torch.allclose(ours[1], theirs[1], atol=1e-6)


def test_settings_that_do_not_fit_are_refused() -> None:
    for changes, words in (
        ({"n_head_entities": 4}, "n_embd_entities = 6 is not a multiple"),
        ({"n_fused": 4}, "n_fused = 4: expected at most model.n_layer = 3"),
        ({"sharing": "all"}, "sharing = 'all': expected 'none'"),
    ):
        with pytest.raises(InputError, match=words):
            dataclasses.replace(CONFIG, **changes)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"its name_pieces have the shape \[7\], expected \[9\]"):
        KnowledgeEncoder(dataclasses.replace(CONFIG, n_name_pieces=9)).know(torch.zeros(5, 6), gazetteer(NAMES), "here")


def test_what_is_known_of_entities_is_read_as_it_was_written(tmp_path: Path) -> None:
    entities = Entities(np.ones((5, 6), np.float32), gazetteer(NAMES))
    entities.save(tmp_path)
    assert Entities.read(tmp_path).sizes == {"n_entities": 5, "n_embd_entities": 6, "n_names": 5, "n_name_pieces": 7}
    with pytest.raises(InputError, match=r"entities.safetensors: cannot be read"):
        Entities.read(tmp_path / "none")
