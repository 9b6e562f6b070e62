"""Networks that transformers alone has: what of them is read as it computes it, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from gptcore import load_model
from gptcore.base.errors import InputError
from gptcore.config import FinetuneConfig
from gptcore.models.classifier import EncoderClassificationModel, Head
from gptcore.models.files.layout import read_model
from gptcore.models.low_rank import add_low_rank
from gptcore.training.optim import rates_by_depth
from tests.gptcore.test_encoder import filled

SIZES = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
}
IDS = torch.tensor([[5, 9, 40, 7, 3, 12, 60, 2]])


def written(folder: Path, kind: str, decoder: bool = False, **changes: Any) -> Any:
    """transformers' network of a kind with random weights, which a folder then holds."""
    config = transformers.AutoConfig.for_model(kind, **{**SIZES, "pad_token_id": 0, "eos_token_id": 1, **changes})
    auto = transformers.AutoModelForCausalLM if decoder else transformers.AutoModel
    theirs: Any = filled(auto.from_config(config)).eval()
    theirs.save_pretrained(folder)
    return theirs


@pytest.mark.parametrize(
    ("kind", "settings", "headless"),
    [
        ("opt", {"ffn_dim": 40, "word_embed_proj_dim": 24}, False),
        ("bloom", {}, False),
        ("mamba", {}, False),
        ("phi", {"num_attention_heads": 3}, True),  # its output layer has a bias
        ("cohere", {"num_key_value_heads": 2, "logit_scale": 4.0}, True),
        ("granite", {"num_key_value_heads": 2, "logits_scaling": 4.0}, True),
        ("gemma2", {"num_key_value_heads": 2, "head_dim": 8, "final_logit_softcapping": 2.0}, True),
    ],
)
@torch.no_grad()
def test_a_decoder_tells_words_where_its_scores_are_products_alone(
    kind: str, settings: dict[str, Any], headless: bool, tmp_path: Path
) -> None:
    theirs = written(tmp_path, kind, decoder=True, **settings)
    ours: Any = load_model(str(tmp_path)).eval()
    torch.testing.assert_close(ours.hidden(IDS), theirs.base_model(IDS)[0], rtol=0, atol=1e-5)
    assert any("output layer" in left for left in read_model(str(tmp_path)).left_out) == headless
    if headless:
        with pytest.raises(InputError, match="nothing that tells the next token was read"):
            ours(IDS)
    else:
        torch.testing.assert_close(ours(IDS), theirs(IDS).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("gemma3_text", {"use_bidirectional_attention": True, "head_dim": 8}, "a decoder whose states hang on more"),
        ("llama", {"is_causal": False}, "is_causal = False, expected True"),
        ("bert", {"is_causal": True}, "is_causal = True, expected False"),
    ],
)
def test_a_decoder_that_sees_ahead_is_refused_and_an_encoder_that_does_not(
    kind: str, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    written(tmp_path, kind, decoder=True, **settings)
    with pytest.raises(InputError, match=message):
        load_model(str(tmp_path))


def test_what_reads_no_words_is_refused_in_a_line(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, image_size=32
    )
    transformers.ViTModel(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="model_type = 'vit', expected gptmill or"):
        load_model(str(tmp_path))


def test_layers_that_no_setting_counts_and_adapters_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "deep", "mpnet")
    deep = tmp_path / "deep" / "config.json"
    deep.write_text(deep.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 1'))
    with pytest.raises(InputError, match=r"has no place for encoder\.layer\.1\."):
        load_model(str(tmp_path / "deep"))
    written(tmp_path / "adapted", "mpnet")
    (tmp_path / "adapted" / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match=r"adapter_config\.json: found an adapter"):
        load_model(str(tmp_path / "adapted"))


@torch.no_grad()
def test_a_pooler_that_is_always_built_is_read(tmp_path: Path) -> None:
    theirs = written(tmp_path, "layoutlm")
    ours: Any = load_model(str(tmp_path)).eval()
    assert torch.equal(ours.model.pooler.dense.weight, theirs.pooler.dense.weight)
    torch.testing.assert_close(ours.encode(IDS), theirs(IDS)[0], rtol=0, atol=1e-5)


def test_rates_by_layer_and_ranks_of_experts_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "encoder", "mpnet")
    encoder: Any = load_model(str(tmp_path / "encoder"))
    model = EncoderClassificationModel(encoder, Head("single", 2, 0.1))
    with pytest.raises(InputError, match="found a network whose layers are not told apart"):
        rates_by_depth(model, FinetuneConfig(layer_decay=0.9))
    written(tmp_path / "experts", "mixtral", decoder=True, num_key_value_heads=2, num_local_experts=2)
    experts: nn.Module = load_model(str(tmp_path / "experts"))
    with pytest.raises(InputError, match=r"found model\.layers\.0\..*experts.*, expected a network without experts"):
        add_low_rank(experts, 2)
