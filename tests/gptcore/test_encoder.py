"""BERT, ALBERT and ELECTRA against transformers: logits, losses and every gradient (eval mode), with padding.

Small networks in all variants, and each family once at a published size.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from gptcore import load_model
from gptcore.base.errors import InputError
from gptcore.config import EncoderConfig
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.families import FAMILIES
from gptcore.models.encoder import Encoder
from gptcore.models.encoder_parts import sinusoids
from gptcore.models.network import load_language_model
from tests.expected import expected as table_of
from tests.gptcore.test_parity import assert_agree

V, T = 61, 11
SMALL: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 16,
}
DISTIL: dict[str, Any] = {
    **{"vocab_size": V, "dim": 24, "n_layers": 4, "n_heads": 3, "hidden_dim": 40, "max_position_embeddings": 16}
}
NARROW = {**SMALL, "embedding_size": 12}
THEIRS: dict[str, Any] = {
    "BERT": lambda: transformers.BertForPreTraining(transformers.BertConfig(**SMALL)),
    "BERT, tanh gelu": lambda: transformers.BertForPreTraining(transformers.BertConfig(**SMALL, hidden_act="gelu_new")),
    "BERT without pairs": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**SMALL)),
    "ALBERT": lambda: transformers.AlbertForPreTraining(transformers.AlbertConfig(**NARROW)),
    "ALBERT in groups": lambda: transformers.AlbertForPreTraining(
        transformers.AlbertConfig(**{**NARROW, "num_hidden_groups": 3})
    ),
    "ALBERT without pairs": lambda: transformers.AlbertForMaskedLM(transformers.AlbertConfig(**NARROW)),
    "DistilBERT": lambda: transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(**DISTIL)),
    "discriminator": lambda: transformers.ElectraForPreTraining(transformers.ElectraConfig(**NARROW)),
    "generator": lambda: transformers.ElectraForMaskedLM(transformers.ElectraConfig(**NARROW)),
    "discriminator of one width": lambda: transformers.ElectraForPreTraining(
        transformers.ElectraConfig(**{**SMALL, "embedding_size": 24})
    ),
}
BASE: dict[str, Any] = {
    "bert": lambda: transformers.BertForPreTraining(transformers.BertConfig()),
    "albert": lambda: transformers.AlbertForPreTraining(
        transformers.AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072)
    ),
    "distilbert": lambda: transformers.DistilBertForMaskedLM(transformers.DistilBertConfig()),
    "electra": lambda: transformers.ElectraForPreTraining(transformers.ElectraConfig()),  # its defaults: the small one
}


PUBLISHED = {
    **{"bert": "bert-base", "albert": "albert-base", "distilbert": "distilbert-base", "electra": "electra-small"}
}


def filled(model: nn.Module) -> nn.Module:
    """Every parameter drawn, gains around 1: biases and norms too, or they would go untested."""
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = 1.0 if "LayerNorm.weight" in name or "layer_norm.weight" in name else 0.0
            parameter.normal_(gain, 0.05, generator=draws)
    return model.eval()


def sequences(n_vocab: int, length: int) -> dict[str, Tensor]:
    """Three of different lengths, two segments each."""
    draws = torch.Generator().manual_seed(1)
    lengths = torch.tensor([length, max(2, length // 2), 2])
    mask = (torch.arange(length) < lengths[:, None]).long()
    return {
        "tokens": torch.randint(0, n_vocab, (3, length), generator=draws) * mask,
        "segments": torch.randint(0, 2, (3, length), generator=draws) * mask,
        "mask": mask,
    }


def called(theirs: Any, given: Mapping[str, Tensor]) -> Any:
    """What their network makes of a batch; DistilBERT's takes no segments."""
    segments = {} if theirs.config.model_type == "distilbert" else {"token_type_ids": given["segments"]}
    return theirs(given["tokens"], attention_mask=given["mask"], **segments)


def assert_parity(theirs: Any, folder: Path, n_vocab: int, length: int) -> Encoder:
    """Logits, the loss of words and pairs or of replaced tokens, every gradient; gives ours."""
    theirs.save_pretrained(folder)
    ours = load_model(str(folder))
    assert isinstance(ours, Encoder)
    given = sequences(n_vocab, length)
    real = given["mask"].bool()
    found = called(theirs, given)
    expected = found.get("prediction_logits", found.get("logits"))
    states = ours.encode(**given)
    if ours.config.replaced:
        logits = ours.replaced_scores(states)
        labels = (given["tokens"] % 3 == 0).float()
        loss = F.binary_cross_entropy_with_logits(logits[real], labels[real])
        target = F.binary_cross_entropy_with_logits(expected[real], labels[real])
    else:
        places = (real.flatten() & (torch.arange(real.numel()) % 3 == 0)).nonzero().squeeze(1)
        words = given["tokens"].flatten()[places]
        logits = ours.word_scores(states)
        loss = F.cross_entropy(ours.word_scores(states.flatten(0, 1)[places]), words)  # of those positions alone
        labels = torch.full((real.numel(),), IGNORE_INDEX).scatter(0, places, words)
        target = F.cross_entropy(expected.flatten(0, 1), labels, ignore_index=IGNORE_INDEX)
    pairs = found.get("seq_relationship_logits", found.get("sop_logits"))
    if pairs is not None:
        scores, kind = ours.pair_scores(states), torch.tensor([0, 1, 1])
        assert_agree(scores, pairs, "pairs")
        loss, target = loss + F.cross_entropy(scores, kind), target + F.cross_entropy(pairs, kind)
    assert_agree(logits[real], expected[real], "logits")
    assert torch.equal(ours(**given), logits)
    assert_agree(loss, target, "loss")
    loss.backward()
    target.backward()
    theirs_by_ours = _gradients(theirs, ours)
    for name, parameter in ours.named_parameters():
        gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        wanted = theirs_by_ours.pop(name)
        # Keys' biases move all scores of a row alike, which the softmax does not see: rounding is all they get.
        if name.endswith("qkv.bias"):
            gradient, wanted = (torch.cat([g.chunk(3)[0], g.chunk(3)[2]]) for g in (gradient, wanted))
        if wanted.abs().max() == 0:
            assert gradient.abs().max() == 0, name
        else:
            assert_agree(gradient, wanted, name)
    assert not theirs_by_ours
    return ours


def _gradients(theirs: Any, ours: Encoder) -> dict[str, Tensor]:
    """The gradients of transformers' network by our names, through the layout itself."""
    layout = FAMILIES[ours.config.family].part("layout")
    gradients = {
        name.removeprefix(f"{layout.model_type}."): torch.zeros_like(value) if value.grad is None else value.grad
        for name, value in theirs.named_parameters()
    }
    named = {}
    for name, its in layout._names(ours.config):
        named[name] = torch.cat([gradients.pop(part) for part in its])
    assert not {name for name, gradient in gradients.items() if gradient.abs().max() > 0}
    return named


@pytest.mark.parametrize("kind", THEIRS)
def test_small_ones_agree_with_transformers(kind: str, tmp_path: Path) -> None:
    assert_parity(filled(THEIRS[kind]()), tmp_path, V, T)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BASE)
def test_published_sizes_agree_with_transformers(kind: str, tmp_path: Path) -> None:
    theirs = filled(BASE[kind]())
    read = assert_parity(theirs, tmp_path, theirs.config.vocab_size, 16)
    assert read.num_parameters == theirs.num_parameters()
    shape = FAMILIES[kind].shapes[PUBLISHED[kind]]
    assert {name: getattr(read.config, name) for name in shape} == shape


@pytest.mark.parametrize("sharing", ["none", "attention", "feed-forward", "all"])
@pytest.mark.parametrize("n_groups", [1, 2])
def test_layers_share_what_they_are_told_to(sharing: str, n_groups: int, tmp_path: Path) -> None:
    """Against the same network with those parameters copied into layers of their own."""
    shape = {"n_vocab": V, "n_ctx": 16, "n_layer": 4, "n_head": 2, "n_embd": 8, "n_inner": 16}
    shared = Encoder(EncoderConfig(**shape, sharing=sharing, n_groups=n_groups)).eval()
    apart = Encoder(EncoderConfig(**shape)).eval()
    tensors = dict(shared.state_dict())
    for layer in range(4):
        group = layer // (4 // n_groups)
        for part, its in (
            ("attention", sharing in ("attention", "all")),
            ("feed_forward", sharing in ("feed-forward", "all")),
        ):
            source = f"{part}.{group if its else layer}."
            found = {name: t for name, t in shared.state_dict().items() if name.startswith(source)}
            tensors |= {f"{part}.{layer}." + name.removeprefix(source): t for name, t in found.items()}
    apart.fill({name: tensor for name, tensor in tensors.items() if name in apart.state_dict()}, "shared")
    given = sequences(V, T)
    assert torch.equal(shared(**given), apart(**given))
    shared.save(tmp_path)
    again = load_model(str(tmp_path))
    assert again.config == shared.config
    assert torch.equal(again(**given), shared(**given))


def test_padding_changes_nothing_of_the_words() -> None:
    model = Encoder(EncoderConfig(n_vocab=V, n_ctx=32, n_layer=2, n_head=2, n_embd=8, n_inner=16)).eval()
    given = sequences(V, T)
    longer = {name: F.pad(value, (0, 9), value=(1 if name == "tokens" else 0)) for name, value in given.items()}
    real = given["mask"].bool()
    torch.testing.assert_close(model(**longer)[:, :T][real], model(**given)[real], rtol=0, atol=1e-6)
    assert not torch.allclose(model(longer["tokens"])[:, :T][real], model(**given)[real]), "without a mask it would"
    ones = torch.ones_like(given["tokens"])
    torch.testing.assert_close(model(given["tokens"]), model(given["tokens"], 0 * ones, ones), rtol=0, atol=1e-6)


def test_sinusoidal_positions_are_those_of_the_paper(tmp_path: Path) -> None:
    waves = sinusoids(50, 12)
    for place in (0, 1, 49):
        for pair in range(6):
            angle = torch.tensor(place / 10_000 ** (2 * pair / 12), dtype=torch.float64)
            assert waves[place, 2 * pair] == pytest.approx(float(torch.sin(angle)), abs=1e-6)
            assert waves[place, 2 * pair + 1] == pytest.approx(float(torch.cos(angle)), abs=1e-6)
    model = Encoder(
        EncoderConfig(n_vocab=V, n_ctx=16, n_layer=1, n_head=2, n_embd=8, n_inner=16, sinusoidal=True)
    ).eval()
    assert not [name for name, _ in model.named_parameters() if "positions" in name]
    model.save(tmp_path)
    assert torch.equal(load_model(str(tmp_path))(torch.arange(9)[None]), model(torch.arange(9)[None]))


def test_weights_are_drawn_within_two_deviations() -> None:
    model = Encoder(EncoderConfig(n_vocab=500, n_ctx=16, n_layer=1, n_head=2, n_embd=32, n_inner=64, init_std=0.02))
    words = model.embeddings.words.weight
    assert words.abs().max() <= 0.04
    assert float(words.std()) == pytest.approx(0.02 * 0.8796, rel=0.03)  # of a normal distribution cut off at two
    again = [Encoder(model.config, torch.Generator().manual_seed(3)).state_dict() for _ in range(2)]
    assert all(torch.equal(again[0][name], again[1][name]) for name in again[0])


def test_what_is_no_encoder_is_refused() -> None:
    sizes = {"n_vocab": V, "n_ctx": 16, "n_layer": 2, "n_head": 2, "n_embd": 8, "n_inner": 16}
    for changes, message in table_of(__file__, "test_what_is_no_encoder_is_refused"):
        with pytest.raises(InputError, match=message):
            EncoderConfig(**{**sizes, **changes})
    bare = Encoder(EncoderConfig(**sizes, words=False, pair=False)).eval()
    with pytest.raises(InputError, match="has no head for masked words"):
        bare(torch.zeros(1, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="a sequence of 17 tokens does not fit n_ctx = 16"):
        bare.encode(torch.zeros(1, 17, dtype=torch.long))


def test_an_encoder_is_not_taken_for_a_model_that_goes_on_with_a_text(tmp_path: Path) -> None:
    Encoder(EncoderConfig(n_vocab=V, n_ctx=16, n_layer=1, n_head=2, n_embd=8, n_inner=16)).save(tmp_path)
    with pytest.raises(InputError, match="found BERT, an encoder; expected a model that predicts the next token"):
        load_language_model(str(tmp_path))


@pytest.mark.parametrize("n_transfer", [None, 2, 1, 0, -1])
def test_a_copy_to_fine_tune_has_the_layers_that_it_takes_over(n_transfer: int | None) -> None:
    config = EncoderConfig(n_vocab=V, n_ctx=16, n_layer=2, n_head=2, n_embd=8, n_inner=16)
    source = Encoder(config).eval()
    copy = source.adapt(n_ctx=10, n_transfer=n_transfer, generator=torch.Generator().manual_seed(5)).eval()
    assert copy.config.n_ctx == 10
    assert (copy.config.words, copy.config.pair, copy.config.replaced) == (False, False, False)
    mine, its = source.state_dict(), copy.state_dict()
    same = {name for name, tensor in its.items() if torch.equal(tensor, mine[name][: len(tensor)])}
    drawn = {name for name in its if name not in same and "norm" not in name and not name.endswith("bias")}
    taken = {-1: [], 0: [], 1: ["0"], 2: ["0", "1"], None: ["0", "1"]}[n_transfer]
    layers = {
        f"{part}.{n}.{w}.weight" for part, ws in _WEIGHTS.items() for n in ("0", "1") if n not in taken for w in ws
    }
    expected = layers | (set() if len(taken) == 2 else {"pooler.weight"})
    words = {f"embeddings.{name}.weight" for name in ("words", "positions", "segments")}
    assert drawn == expected | (words if n_transfer == -1 else set())
    if n_transfer is None:
        tokens = torch.arange(9)[None]
        assert torch.equal(copy.encode(tokens), source.encode(tokens))


_WEIGHTS = {"attention": ("qkv", "projection"), "feed_forward": ("inner", "projection")}


def test_blocks_that_share_parameters_are_taken_over_as_they_can_be() -> None:
    shape = {"n_vocab": V, "n_ctx": 16, "n_layer": 4, "n_head": 2, "n_embd": 8, "n_inner": 16, "n_embd_words": 4}
    source = Encoder(EncoderConfig(**shape, sharing="all", n_groups=2))

    def taken(n_transfer: int | None) -> list[bool]:
        copy = source.adapt(n_transfer=n_transfer)
        return [torch.equal(a.qkv.weight, b.qkv.weight) for a, b in zip(copy.attention, source.attention, strict=True)]

    assert (taken(None), taken(2), taken(1), taken(0)) == ([True] * 2, [True] * 2, [True, False], [False] * 2)
    with pytest.raises(InputError, match="n_transfer = 3: the model has 2 blocks"):
        source.adapt(n_transfer=3)
    with pytest.raises(InputError, match="n_ctx = 17: the model has 16 positions"):
        source.adapt(n_ctx=17)
    half = Encoder(EncoderConfig(**shape, sharing="attention"))
    with pytest.raises(InputError, match="n_transfer = 1: the model's layers share parameters, expected 0 or 4"):
        half.adapt(n_transfer=1)


def test_a_deep_network_of_shared_layers_has_few_tensors(tmp_path: Path) -> None:
    """Fewer than layers: of 24 in all, without heads."""
    theirs = filled(transformers.AlbertModel(transformers.AlbertConfig(**{**NARROW, "num_hidden_layers": 24})))
    theirs.save_pretrained(tmp_path)
    model = load_model(str(tmp_path))
    assert isinstance(model, Encoder)
    given = sequences(V, T)
    found = called(theirs, given)
    real = given["mask"].bool()
    torch.testing.assert_close(model.encode(**given)[real], found.last_hidden_state[real], rtol=1e-4, atol=1e-5)
