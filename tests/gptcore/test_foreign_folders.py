"""Folders of each architecture of transformers' that is read natively, with random weights, in every shape that they
come in: in shards, in halves of the numbers, under other prefixes, with heads that no network of ours has, or damaged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gptcore import load_model
from gptcore.base.errors import InputError
from gptcore.models.classifier import ClassificationModel, EncoderClassificationModel, Head
from gptcore.models.files.export import export_classifier, export_hugging_face
from gptcore.models.files.folder import ModelFolder, weight_files
from gptcore.models.files.layout import StoredModel, model_types, read_model
from gptcore.models.incremental import open_reader
from gptcore.models.network import LanguageModel
from gptcore.text.byte_bpe import ByteTokenizer
from tests.gptcore.test_encoder import filled
from tests.gptcore.tiny_tasks import task_of

V, T = 61, 11
ENCODER = {
    "vocab_size": V,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
}
DECODER = {"vocab_size": V, "n_positions": 32, "n_layer": 4, "n_head": 4, "n_embd": 24}


class Made(NamedTuple):
    """An architecture of transformers': its classes, and the settings of a tiny network."""

    classes: str
    words: str
    """The class that tells words, without ``classes``."""
    prefix: str
    layers: str
    """The setting that counts layers."""
    settings: Mapping[str, Any]


MADE = {
    "bert": Made("Bert", "ForMaskedLM", "bert.", "num_hidden_layers", ENCODER),
    "albert": Made("Albert", "ForMaskedLM", "albert.", "num_hidden_groups", {**ENCODER, "num_hidden_groups": 2}),
    "roberta": Made(
        "Roberta",
        "ForMaskedLM",
        "roberta.",
        "num_hidden_layers",
        {**ENCODER, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    ),
    "xlm-roberta": Made("XLMRoberta", "ForMaskedLM", "roberta.", "num_hidden_layers", {**ENCODER, "pad_token_id": 1}),
    "camembert": Made("Camembert", "ForMaskedLM", "roberta.", "num_hidden_layers", ENCODER),
    "electra": Made("Electra", "ForMaskedLM", "electra.", "num_hidden_layers", ENCODER),
    "distilbert": Made(
        "DistilBert",
        "ForMaskedLM",
        "distilbert.",
        "n_layers",
        {"vocab_size": V, "dim": 24, "n_layers": 4, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 32},
    ),
    "gpt2": Made("GPT2", "LMHeadModel", "transformer.", "n_layer", DECODER),
    "llama": Made("Llama", "ForCausalLM", "model.", "num_hidden_layers", {**ENCODER, "num_key_value_heads": 2}),
    "llama with biases": Made(
        "Llama",
        "ForCausalLM",
        "model.",
        "num_hidden_layers",
        {**ENCODER, "attention_bias": True, "head_dim": 4, "tie_word_embeddings": True, "rope_theta": 100.0},
    ),
    "mistral": Made(
        "Mistral",
        "ForCausalLM",
        "model.",
        "num_hidden_layers",
        {**ENCODER, "num_key_value_heads": 1, "sliding_window": None},
    ),
    "qwen2": Made("Qwen2", "ForCausalLM", "model.", "num_hidden_layers", {**ENCODER, "num_key_value_heads": 2}),
    "qwen3": Made(
        "Qwen3",
        "ForCausalLM",
        "model.",
        "num_hidden_layers",
        {**ENCODER, "num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": True},
    ),
    "modernbert": Made(
        "ModernBert",
        "ForMaskedLM",
        "model.",
        "num_hidden_layers",
        {
            **ENCODER,
            "local_attention": 6,
            "pad_token_id": 1,
            "bos_token_id": 2,
            "eos_token_id": 0,
            "cls_token_id": 2,
            "sep_token_id": 0,
            "classifier_pooling": "mean",
        },
    ),
    "openai-gpt": Made("OpenAIGPT", "LMHeadModel", "transformer.", "n_layer", DECODER),
}
every = pytest.mark.parametrize("kind", MADE)


def written(kind: str, folder: Path, network: str = "", **changes: Any) -> Any:
    """transformers' network of a kind with random weights, which a folder then holds.

    :param network: its class without the architecture's name; empty: the one that tells words.
    """
    made = MADE[kind]
    config = getattr(transformers, f"{made.classes}Config")(**{**made.settings, **changes})
    theirs: Any = filled(getattr(transformers, made.classes + (network or made.words))(config))
    theirs.save_pretrained(folder)
    return theirs


def batch() -> dict[str, Tensor]:
    """Three sequences of different lengths, right-padded."""
    lengths = torch.tensor([T, 7, 2])
    mask = (torch.arange(T) < lengths[:, None]).long()
    tokens = torch.randint(3, V, (3, T), generator=torch.Generator().manual_seed(1))
    return {"tokens": torch.where(mask.bool(), tokens, 1), "mask": mask}


@torch.no_grad()
def logits(model: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
    """What ours or transformers' makes of the words of a batch: [N, V]."""
    if isinstance(model, transformers.PreTrainedModel):
        found: Tensor = model(given["tokens"], attention_mask=given["mask"]).logits
    else:
        found = model(given["tokens"], **({"mask": given["mask"]} if hasattr(model, "encode") else {}))
    return found[given["mask"].bool()]


def same(folder: Path, other: Path) -> bool:
    """Whether two folders hold the same model, bit for bit."""
    ours, theirs = read_model(str(folder)), read_model(str(other))
    return ours.config == theirs.config and all(
        torch.equal(tensor, theirs.tensors[name]) for name, tensor in ours.tensors.items()
    )


@every
def test_words_are_told_as_by_transformers(kind: str, tmp_path: Path) -> None:
    theirs = written(kind, tmp_path)
    torch.testing.assert_close(logits(load_model(str(tmp_path)), batch()), logits(theirs, batch()), rtol=0, atol=1e-5)
    assert read_model(str(tmp_path)).left_out == ()


@every
@pytest.mark.parametrize("size", ["5KB", "20KB"])
def test_shards_are_read_as_one_file(kind: str, size: str, tmp_path: Path) -> None:
    written(kind, tmp_path / "whole").save_pretrained(tmp_path / "shards", max_shard_size=size)
    index, *shards = weight_files(ModelFolder(str(tmp_path / "shards")))
    assert index == "model.safetensors.index.json"
    assert len(shards) > 1
    assert same(tmp_path / "shards", tmp_path / "whole")
    assert weight_files(ModelFolder(str(tmp_path / "whole"))) == ["model.safetensors"]


def test_shards_of_the_older_kind_are_read_as_one_file(tmp_path: Path) -> None:
    written("gpt2", tmp_path / "whole")
    tensors = list(load_file(tmp_path / "whole" / "model.safetensors").items())
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "config.json").write_bytes((tmp_path / "whole" / "config.json").read_bytes())
    names = {}
    for number, part in enumerate((tensors[:9], tensors[9:])):
        torch.save(dict(part), folder / f"pytorch_model-{number}.bin")
        names |= {name: f"pytorch_model-{number}.bin" for name, _ in part}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": names}))
    assert same(folder, tmp_path / "whole")


def index(folder: Path, change: Callable[[dict[str, str]], Any]) -> None:
    """Change which shard an index says holds each tensor."""
    file = folder / "model.safetensors.index.json"
    stored = json.loads(file.read_text())
    change(stored["weight_map"])
    file.write_text(json.dumps(stored))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: next(folder.glob("*-00002-*")).unlink(), "model-00002-of-.*: no such file"),
        (lambda folder: index(folder, lambda names: names.update(more=min(names.values()))), "no tensor more, which"),
        (lambda folder: index(folder, lambda names: names.update(more="../x.safetensors")), "found '../x.safetensors'"),
        (lambda folder: index(folder, lambda names: names.update(more=7)), "weight_map: found 7, expected names of"),
        (lambda folder: index(folder, lambda names: names.clear()), "weight_map: found None, expected names of"),
    ],
)
def test_shards_that_are_not_what_the_index_says_are_refused(
    damage: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    written("bert", tmp_path / "whole").save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    damage(tmp_path / "shards")
    with pytest.raises(InputError, match=message):
        load_model(str(tmp_path / "shards"))


def rewrite(folder: Path, change: Callable[[str, Tensor], tuple[str, Tensor]]) -> None:
    file = folder / "model.safetensors"
    save_file(dict(change(name, tensor) for name, tensor in load_file(file).items()), file)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_of_numbers_are_read_as_the_numbers_that_they_are(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    written(kind, tmp_path)
    rewrite(tmp_path, lambda name, tensor: (name, tensor.to(dtype)))
    found = load_model(str(tmp_path)).state_dict()
    rewrite(tmp_path, lambda name, tensor: (name, tensor.float()))
    expected = load_model(str(tmp_path)).state_dict()
    assert all(tensor.dtype == torch.float32 and torch.equal(tensor, expected[name]) for name, tensor in found.items())


@every
@pytest.mark.parametrize("prefix", ["", "model.", "module.", "_orig_mod.", "module._orig_mod."])
def test_names_behind_other_prefixes_are_read(kind: str, prefix: str, tmp_path: Path) -> None:
    for name in ("plain", "other"):
        written(kind, tmp_path / name)
    own = MADE[kind].prefix

    def renamed(name: str, tensor: Tensor) -> tuple[str, Tensor]:
        return prefix + (name if prefix else name.removeprefix(own)), tensor

    rewrite(tmp_path / "other", renamed)
    assert same(tmp_path / "other", tmp_path / "plain")


TWO_LAYERS = {"classifier.dense", "classifier.out_proj"}
LEFT_OUT = {
    "distilbert": {"pre_classifier", "classifier"},
    "electra": TWO_LAYERS,
    "roberta": TWO_LAYERS,
    "xlm-roberta": TWO_LAYERS,
    "camembert": TWO_LAYERS,
    **{kind: {"score"} for kind in ("gpt2", "openai-gpt", "mistral", "qwen2", "qwen3")},
}


@every
def test_heads_of_tasks_are_left_out_and_told(kind: str, tmp_path: Path) -> None:
    theirs = written(kind, tmp_path, "ForSequenceClassification", num_labels=3, pad_token_id=1)
    stored = read_model(str(tmp_path))
    heads = {name.rpartition(".")[0] for name in stored.left_out}
    assert heads == LEFT_OUT.get(kind, {"score"} if kind.startswith("llama") else {"classifier"})
    trunk = load_model(str(tmp_path))
    given = batch()
    if hasattr(trunk, "encode"):
        ours = trunk.encode(given["tokens"], None, given["mask"])
    else:
        ours = trunk.hidden(given["tokens"])
    with torch.no_grad():
        states = theirs.base_model(given["tokens"], attention_mask=given["mask"]).last_hidden_state
    real = given["mask"].bool()
    torch.testing.assert_close(ours[real], states[real], rtol=0, atol=1e-5)


@every
def test_nothing_is_left_unread_without_a_word(kind: str, tmp_path: Path) -> None:
    written(kind, tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    count = MADE[kind].layers
    (tmp_path / "config.json").write_text(json.dumps({**settings, count: settings[count] - 1}))
    with pytest.raises(InputError, match=r"config.json: has no place for .*, but model.safetensors has it"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(settings))
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "adapter.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"has no place for adapter.weight, but model.safetensors has it"):
        load_model(str(tmp_path))
    twice = next(name for name in tensors if name.startswith(MADE[kind].prefix))
    save_file({**tensors, f"module.{twice}": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=rf"found .*{twice} beside .*{twice}, expected one of the two"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("kind", ["gpt2", "openai-gpt"])
def test_a_head_of_its_own_is_refused_where_no_network_has_one(kind: str, tmp_path: Path) -> None:
    theirs = written(kind, tmp_path)
    table = theirs.get_input_embeddings().weight.detach()
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "lm_head.weight": table.clone()}, tmp_path / "model.safetensors")
    assert read_model(str(tmp_path)).left_out == ()
    save_file({**tensors, "lm_head.weight": table + 1}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"lm_head.weight: differs from \w+.weight, expected the same"):
        load_model(str(tmp_path))


WORDS = ByteTokenizer.train(["The old king and the new queen, 12! Don't stop..."] * 3, 30)
"""A tokenizer of the families that read bytes."""
OF_BYTES = {
    "roberta": ("MultipleChoice", "QuestionAnswering", "SequenceClassification", "TokenClassification"),
    "modernbert": ("MultipleChoice", "SequenceClassification"),
    **dict.fromkeys(("llama", "llama with biases", "mistral", "qwen2", "qwen3"), ()),
}


@pytest.mark.parametrize("kind", OF_BYTES)
def test_a_folder_there_and_back_has_the_logits_that_it_had(kind: str, tmp_path: Path) -> None:
    theirs = written(kind, tmp_path / "theirs", vocab_size=WORDS.n_vocab)
    model = load_model(str(tmp_path / "theirs"))
    export_hugging_face(model, WORDS, tmp_path / "back")
    (name,) = json.loads((tmp_path / "back" / "config.json").read_text())["architectures"]
    assert name == ("LlamaForCausalLM" if kind == "mistral" else type(theirs).__name__)
    back, said = getattr(transformers, name).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(said.values()), said
    assert torch.equal(logits(back, batch()), logits(theirs, batch()))
    assert load_model(str(tmp_path / "back")).config == model.config


FORMS = {"MultipleChoice": "choices", "QuestionAnswering": "span", "TokenClassification": "tags"}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in OF_BYTES.items() for name in names])
def test_a_classifier_is_written_as_transformers_own(kind: str, name: str, tmp_path: Path) -> None:
    written(kind, tmp_path / "theirs", "Model" if kind == "roberta" else "", vocab_size=WORDS.n_vocab)
    form = FORMS.get(name, "pair")
    n_outputs = {"choices": 1, "span": 2}.get(form, 3)
    network = load_model(str(tmp_path / "theirs")).adapt()
    model = EncoderClassificationModel.over(network, "", Head(form, n_outputs, 0.1)).eval()
    export_classifier(model, task_of(form, ("yes", "no", "maybe")[:n_outputs]), {}, WORDS, tmp_path / "out")
    theirs, said = getattr(transformers, MADE[kind].classes + "For" + name).from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(said.values()), said
    given = batch()
    tokens, mask = (part[:, None] for part in given.values())
    with torch.no_grad():
        if form == "choices":
            found = theirs(tokens, attention_mask=mask)
        else:
            found = theirs(given["tokens"], attention_mask=given["mask"])
        ours, _ = model(tokens, torch.zeros(1), mask=mask.bool())
    expected = torch.stack([found.start_logits, found.end_logits], -1) if form == "span" else found.logits
    real = given["mask"].bool() if form in ("span", "tags") else slice(None)
    torch.testing.assert_close(ours[real], expected[real], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("network", "form", "pooling"), [("", "tags", None), ("", "pair", "mean"), ("Model", "pair", None)]
)
def test_a_modernbert_that_no_class_of_transformers_computes_brings_its_code(
    network: str, form: str, pooling: str | None, tmp_path: Path
) -> None:
    written("modernbert", tmp_path / "theirs", network, vocab_size=WORDS.n_vocab)
    below = load_model(str(tmp_path / "theirs")).adapt()
    model = EncoderClassificationModel.over(below, "", Head(form, 3, 0.1, pooling)).eval()
    export_classifier(model, task_of(form, ("yes", "no", "maybe")), {}, WORDS, tmp_path / "out")
    kind = "AutoModelForTokenClassification" if form == "tags" else "AutoModelForSequenceClassification"
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / "out", trust_remote_code=True).eval()
    given = batch()
    real = given["mask"].bool()
    with torch.no_grad():
        found = theirs(given["tokens"], attention_mask=given["mask"]).logits
        ours, _ = model(given["tokens"][:, None], torch.zeros(1), mask=real[:, None])
    torch.testing.assert_close(ours[real] if form == "tags" else ours, found[real] if form == "tags" else found)


def natively(folder: Path) -> StoredModel:
    """What our own network reads of a folder, whether or not another one reads what it refuses."""
    settings = json.loads((folder / "config.json").read_text())
    family = model_types()[settings["model_type"]]
    stored: StoredModel = family.part("layout").read(
        ModelFolder(str(folder)), settings, family.part("config")(family=family.name)
    )
    return stored


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"layer_types": ["full_attention", "full_attention", "sliding_attention"]},
            "layer_types: expected one of full",
        ),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type = 'yarn', expected 'default'"),
        ({"mlp_bias": True}, "mlp_bias = True, expected False"),
        ({"hidden_activation": "relu"}, "hidden_activation = 'relu', expected one of gelu, gelu_new"),
    ],
)
def test_a_modernbert_of_another_kind_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    written("modernbert", tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, **changes}))
    with pytest.raises(InputError, match=message):
        natively(tmp_path)


@pytest.mark.parametrize("every", [1, 2, 5])
def test_layers_of_modernbert_see_the_whole_text_as_often_as_their_folder_says(every: int, tmp_path: Path) -> None:
    theirs = written("modernbert", tmp_path, global_attn_every_n_layers=every)
    torch.testing.assert_close(logits(load_model(str(tmp_path)), batch()), logits(theirs, batch()), rtol=0, atol=1e-5)


def test_a_copy_of_modernbert_to_fine_tune_has_what_it_takes_over(tmp_path: Path) -> None:
    written("modernbert", tmp_path)
    model = load_model(str(tmp_path))
    parts = sum(len(depth) for depth in model.parameters_by_depth())
    assert parts == len(list(model.parameters()))
    tokens = batch()["tokens"]
    whole = model.adapt(n_ctx=20).eval()
    assert torch.equal(whole.encode(tokens), model.encode(tokens))
    some = model.adapt(n_transfer=2)
    same = {name for name, tensor in some.state_dict().items() if torch.equal(tensor, model.state_dict()[name])}
    assert {"embeddings.words.weight", "attention.1.qkv.weight", "feed_forward.1.inner.weight"} <= same
    assert not {"attention.2.qkv.weight", "feed_forward.2.inner.weight", "pooler.dense.weight", "norm.weight"} & same


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("mistral", {"sliding_window": 8}, "sliding_window = 8, expected null, or at least 32 positions"),
        ("qwen2", {"use_sliding_window": True}, None),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type = 'linear', expected 'default'"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act = 'gelu', expected 'silu'"),
        ("llama", {"mlp_bias": True}, "mlp_bias = True, expected False"),
        ("llama", {"num_key_value_heads": 3}, "model.n_head = 4 is not a multiple of model.n_head_keys = 3"),
        ("llama", {"rope_parameters": {"rope_theta": "x"}}, "model.theta = 'x'; expected float"),
    ],
)
def test_what_a_decoder_of_llamas_kind_computes_otherwise_is_refused(
    kind: str, changes: dict[str, Any], message: str | None, tmp_path: Path
) -> None:
    written(kind, tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    without = [name for name in settings if name == "rope_parameters" and "rope_scaling" in changes]
    kept = {name: value for name, value in settings.items() if name not in without}
    (tmp_path / "config.json").write_text(json.dumps({**kept, **changes}))
    if message is None:  # a window of 4,096 is no shorter than the positions
        load_model(str(tmp_path))
        return
    with pytest.raises(InputError, match=message):
        natively(tmp_path)


def test_a_head_of_its_own_tells_words_wherever_words_are_told(tmp_path: Path) -> None:
    """In a pass, token by token, beside a task, and where transformers ties what its settings say it ties."""
    theirs = written("llama", tmp_path)
    model = load_model(str(tmp_path))
    assert isinstance(model, LanguageModel)
    given = batch()
    expected = logits(theirs, given)
    reader = open_reader(model, 3)
    texts = [row[: int(mask.sum())].tolist() for row, mask in zip(given["tokens"], given["mask"], strict=True)]
    ends = torch.tensor([len(text) for text in texts]).cumsum(0) - 1
    torch.testing.assert_close(reader.feed(texts), expected[ends], rtol=0, atol=1e-5)
    tuned = ClassificationModel.over(model.adapt(), "", Head("single", 2, 0.0)).eval()
    assert tuned.gpt.config.n_special == 3
    places = given["mask"].flatten().nonzero()[:, 0]
    _, for_lm = tuned(given["tokens"][:, None], given["mask"].sum(1, keepdim=True) - 1, places)
    assert for_lm is not None
    states, rows = for_lm
    torch.testing.assert_close((states @ rows.T)[:, :V], expected, rtol=0, atol=1e-5)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "tie_word_embeddings": True}))
    torch.testing.assert_close(logits(load_model(str(tmp_path)), given), expected, rtol=0, atol=1e-5)
    tied = type(theirs).from_pretrained(tmp_path)
    torch.testing.assert_close(logits(tied, given), expected, rtol=0, atol=1e-5)


def test_a_decoder_without_its_head_is_fine_tuned_and_tells_no_word(tmp_path: Path) -> None:
    written("llama", tmp_path, "Model")
    model = load_model(str(tmp_path))
    assert isinstance(model, LanguageModel)
    tuned = ClassificationModel.over(model.adapt(), "", Head("pair", 2, 0.0)).eval()
    given = batch()
    assert tuned(given["tokens"][:, None], given["mask"].sum(1, keepdim=True) - 1)[0].shape == (3, 2)
    with pytest.raises(InputError, match="model: has no head for the next token; expected a folder that holds one"):
        model(given["tokens"])


def test_a_cache_grows_with_its_texts_and_not_with_the_positions_that_there_may_be(tmp_path: Path) -> None:
    written("llama", tmp_path, max_position_embeddings=131_072)
    model = load_model(str(tmp_path))
    assert isinstance(model, LanguageModel)
    ids = torch.randint(3, V, (1, 1030), generator=torch.Generator().manual_seed(2))
    reader = open_reader(model, 2)
    assert reader._cache.keys.shape[2] == 1024
    reader.feed([ids[0, :1020].tolist(), ids[0, :7].tolist()])
    found = reader.feed([ids[0, 1020:].tolist(), ids[0, 7:9].tolist()])
    assert reader._cache.keys.shape[2] == 2060
    with torch.no_grad():
        expected = torch.cat([model(ids)[:, -1], model(ids[:, :9])[:, -1]])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
