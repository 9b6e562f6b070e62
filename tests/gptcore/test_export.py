"""Foreign model folders, read and written: transformers' "openai-gpt" of both ages, the original release's arrays."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore import GPT, ModelConfig, Tokenizer, load_model
from gptcore.base.errors import InputError
from gptcore.evaluation.generate import generate
from gptcore.models.files.export import export_hugging_face
from gptcore.models.files.folder import export_release
from gptcore.models.files.library import SPECIAL_NAMES
from gptcore.papers.abstracts.documents import Paper, document, document_ids
from gptcore.text.bpe import WordTokenizer
from gptcore.text.byte_bpe import ByteTokenizer
from tests.realdata import real_data

Model = TypeVar("Model", bound=torch.nn.Module)

SIZES = {"vocab_size": 50, "n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 12}
TINY = ModelConfig(n_vocab=50, n_ctx=16, n_layer=2, n_head=12, n_embd=24, n_inner=96)
PLAIN = ["the old king", "the , king . 12 ! ?", "The OLD   queen", "tea & cake ?"]
"""Unaccented words and single marks, set apart by spaces."""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return WordTokenizer.train(["the old king and the new queen , 12 ! don't stop ... - ? &", "the cake . tea"] * 3, 30)


def decoder(tokenizer: Tokenizer, **changes: Any) -> GPT:
    """A small model with every weight random, biases and gains too."""
    return randomised(GPT(dataclasses.replace(TINY, **{"n_vocab": tokenizer.n_vocab, "family": "", **changes})))


def randomised(model: Model) -> Model:
    draws = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.2, generator=draws)
    return model.eval()


def hugging_face() -> transformers.OpenAIGPTLMHeadModel:
    config = transformers.OpenAIGPTConfig(**SIZES)
    return randomised(transformers.OpenAIGPTLMHeadModel(config))


def tokens(n_vocab: int = 50) -> torch.Tensor:
    return torch.randint(0, n_vocab, (3, 16), generator=torch.Generator().manual_seed(1))


def same_weights(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    mine, its = a.state_dict(), b.state_dict()
    return mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in mine)


def comes_back(model: GPT, folder: Path) -> bool:
    """Whether a folder holds a model bit for bit."""
    again = GPT.load(folder)
    return again.config == model.config and same_weights(again, model)


def write_release(folder: Path, theirs: transformers.OpenAIGPTLMHeadModel) -> None:
    """The original release's layout: positions, tokens, blocks, cut into ten flat arrays that ignore boundaries."""
    body = theirs.transformer
    arrays = [body.positions_embed.weight, body.tokens_embed.weight]
    for block in body.h:
        for part in (block.attn.c_attn, block.attn.c_proj, block.ln_1, block.mlp.c_fc, block.mlp.c_proj, block.ln_2):
            arrays += [part.weight[None] if part.weight.ndim == 2 else part.weight, part.bias]
    values = [array.detach().numpy() for array in arrays]
    folder.mkdir(exist_ok=True)
    (folder / "params_shapes.json").write_text(json.dumps([value.shape for value in values]))
    flat = np.concatenate([value.reshape(-1) for value in values])
    for number, piece in enumerate(np.array_split(flat, 10)):
        np.save(folder / f"params_{number}.npy", piece)


# Reading --------------------------------------------------------------------------------------------------------------


def gpt2(**changes: Any) -> transformers.GPT2LMHeadModel:
    return randomised(transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES, **changes)))


THEIRS = {"GPT-1": hugging_face, "GPT-2": gpt2, "GPT-2 of another inner width": lambda: gpt2(n_inner=40)}


@pytest.mark.parametrize("kind", THEIRS)
def test_what_transformers_saves_loads_and_computes_the_same(tmp_path: Path, kind: str) -> None:
    theirs = THEIRS[kind]()
    theirs.save_pretrained(tmp_path)
    ours = GPT.load(tmp_path)
    assert not ours.training
    assert ours.config.norm_first == (kind != "GPT-1")
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens()), theirs(tokens()).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("prefix", ["transformer.", ""])
@pytest.mark.parametrize("kind", ["GPT-1", "GPT-2"])
def test_the_older_pytorch_model_bin_loads(tmp_path: Path, kind: str, prefix: str) -> None:
    theirs = THEIRS[kind]()
    theirs.save_pretrained(tmp_path)
    expected = GPT.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    stored = {f"{prefix}{name}": value for name, value in theirs.transformer.state_dict().items()}
    # the mask that old folders hold as well
    stored[f"{prefix}h.0.attn.bias"] = torch.ones(*[1, 1][: 2 * (kind == "GPT-2")], 16, 16).tril()
    torch.save(stored, tmp_path / "pytorch_model.bin")
    assert same_weights(GPT.load(f"file://{tmp_path}"), expected)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("activation_function", "relu"), ("scale_attn_weights", False), ("scale_attn_by_inverse_layer_idx", True)],
)
def test_a_gpt2_of_another_kind_is_left_to_transformers(tmp_path: Path, setting: str, value: Any) -> None:
    theirs = gpt2(**{setting: value}).eval()
    theirs.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="found WrappedDecoderConfig, a network of another kind"):
        GPT.load(tmp_path)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    torch.testing.assert_close(load_model(str(tmp_path))(ids), theirs(ids).logits)


@pytest.fixture(scope="module")
def byte_tokenizer() -> Tokenizer:
    return ByteTokenizer.train(
        ["The old king and the new queen, 12! Don't stop... \u00e9t\u00e9 - ? &\n\nThe end."] * 3, 30
    )


@pytest.mark.parametrize("n_special", [0, 2, 3])
def test_transformers_loads_an_exported_gpt2_and_writes_the_same_text(
    tmp_path: Path, byte_tokenizer: Tokenizer, n_special: int
) -> None:
    model = decoder(byte_tokenizer, n_special=n_special, norm_first=True, n_inner=40)
    export_hugging_face(model, byte_tokenizer, tmp_path)
    assert comes_back(model, tmp_path)
    assert Tokenizer.load(tmp_path).digest == byte_tokenizer.digest
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert isinstance(theirs, transformers.GPT2LMHeadModel)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert len(words) == byte_tokenizer.n_vocab + n_special
    for text in ("The  old king,\n12 caf\u00e9s", "don't \u4e2d\u6587 ", "\t\r\n x"):
        assert words.encode(text) == byte_tokenizer.encode(text)
        assert words.decode(words.encode(text)) == text
    prompt = torch.tensor([byte_tokenizer.encode("The old")])
    room = model.config.n_ctx - prompt.shape[1]
    written = theirs.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=room,
        do_sample=False,
        pad_token_id=0,
        suppress_tokens=list(range(byte_tokenizer.n_vocab, byte_tokenizer.n_vocab + n_special)) or None,
    )[0, prompt.shape[1] :]
    ours = "".join(generate(model, byte_tokenizer, "The old", max_tokens=len(written), temperature=0))
    assert ours == byte_tokenizer.decode(written.tolist())


_words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).map(lambda text: " ".join(text.split()))
_paper_texts = _words.filter(lambda text: text and "<|" not in text)  # a mark's name in a text is another matter


@pytest.fixture(scope="module")
def paper_tokenizer(byte_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """transformers' tokenizer of an exported model of papers."""
    folder = tmp_path_factory.mktemp("papers")
    export_hugging_face(decoder(byte_tokenizer, n_special=2, norm_first=True), byte_tokenizer, folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


@settings(max_examples=200)
@given(title=_paper_texts, abstract=_paper_texts)
def test_an_exported_model_of_papers_reads_their_format_as_it_was_trained(
    byte_tokenizer: Tokenizer, paper_tokenizer: Any, title: str, abstract: str
) -> None:
    paper = Paper("1706.03762", datetime.date(2017, 6, 12), "cs.CL", title, abstract)
    ids = document_ids(byte_tokenizer, paper)
    assert paper_tokenizer.encode(document(paper)) == ids
    assert paper_tokenizer.encode(f"{document(paper)}\n{document(paper)}\n") == [*ids, *ids], "as the files have them"


class Trap:
    """Would run code when unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("the file ran code",)


def saved(stored: Any) -> bytes:
    file = io.BytesIO()
    torch.save(stored, file)
    return file.getvalue()


NO_TENSORS = r"not a file of torch tensors alone \(.*\)$"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (saved({"tokens_embed.weight": Trap()}), NO_TENSORS),
        (pickle.dumps(Trap()), NO_TENSORS),
        (saved({"tokens_embed.weight": torch.zeros(999)})[:1000], NO_TENSORS),
        (saved([torch.zeros(2)]), "found a list, expected tensors by name"),
        (saved({7: torch.zeros(2)}), "found a dict, expected tensors by name"),
        (saved({"a": torch.zeros(2, 2).to_sparse()}), "a: found no plain tensor"),
        (saved({"a": torch.zeros(2, device="meta")}), "a: found no plain tensor"),
        (saved({"positions_embed.weight": torch.zeros(2)}), r"no tensor tokens_embed\.weight"),
    ],
)
def test_a_pytorch_model_bin_of_anything_but_weights_is_refused_and_runs_no_code(
    tmp_path: Path, data: bytes, message: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "openai-gpt", **SIZES}))
    with pytest.raises(InputError, match=r"model\.safetensors: no such file"):
        GPT.load(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(data)
    with pytest.raises(InputError, match=rf"pytorch_model\.bin: {message}"):
        GPT.load(tmp_path)


def test_special_rows_that_the_first_versions_of_transformers_put_after_vocab_size(tmp_path: Path) -> None:
    theirs = hugging_face()
    theirs.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    for vocab_size in (50, 47):
        (tmp_path / "config.json").write_text(json.dumps({**settings, "vocab_size": vocab_size, "n_special": 3}))
        config = GPT.load(tmp_path).config
        assert (config.n_vocab, config.n_special) == (47, 3)


def test_the_original_release_loads(tmp_path: Path) -> None:
    theirs = hugging_face()
    write_release(tmp_path, theirs)
    with torch.no_grad():
        torch.testing.assert_close(GPT.load(tmp_path)(tokens()), theirs(tokens()).logits, rtol=1e-4, atol=1e-5)


def test_releases_that_are_damaged(tmp_path: Path) -> None:
    write_release(tmp_path, hugging_face())
    (tmp_path / "params_9.npy").write_bytes(b"x")
    with pytest.raises(InputError, match=r"params_9\.npy: not a numpy file"):
        GPT.load(tmp_path)
    np.save(tmp_path / "params_9.npy", np.zeros(3, np.float32))
    with pytest.raises(InputError, match="shapes of"):
        GPT.load(tmp_path)


# Writing --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_special", [0, 2, 3])
def test_an_export_comes_back_bit_for_bit_and_transformers_loads_all_of_it_and_computes_the_same(
    tmp_path: Path, tokenizer: Tokenizer, n_special: int
) -> None:
    model = decoder(tokenizer, n_special=n_special, embd_pdrop=0.2, attn_pdrop=0.3, resid_pdrop=0.4, init_std=0.05)
    export_hugging_face(model, tokenizer, tmp_path)
    assert comes_back(model, tmp_path)
    assert Tokenizer.load(tmp_path).digest == tokenizer.digest
    for load in (transformers.OpenAIGPTLMHeadModel, transformers.AutoModelForCausalLM):
        theirs, report = load.from_pretrained(tmp_path, output_loading_info=True)
        assert not any(report.values()), report
        assert theirs.dtype == torch.float32
        ids = tokens(tokenizer.n_vocab + n_special)
        with torch.no_grad():
            torch.testing.assert_close(theirs.eval()(ids).logits, model(ids), rtol=1e-4, atol=1e-5)
    continued = theirs.generate(ids[:1, :4], max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert torch.equal(continued[0, 4], model(ids[:1, :4])[0, -1].argmax())


@pytest.mark.parametrize("kind", ["OpenAIGPT", "GPT2"])
def test_hugging_face_to_ours_and_back_bit_for_bit(
    tmp_path: Path, kind: str, tokenizer: Tokenizer, byte_tokenizer: Tokenizer
) -> None:
    words = tokenizer if kind == "OpenAIGPT" else byte_tokenizer
    sizes = {**SIZES, "vocab_size": words.n_vocab, "n_head": 4, "attn_pdrop": 0.3}
    config = getattr(transformers, f"{kind}Config")(**sizes)
    network = getattr(transformers, f"{kind}LMHeadModel")
    theirs = randomised(network(config))
    theirs.save_pretrained(tmp_path / "theirs")
    export_hugging_face(GPT.load(tmp_path / "theirs"), words, tmp_path / "back")
    back = network.from_pretrained(tmp_path / "back")
    assert same_weights(back, theirs)
    for name in (*sizes, "embd_pdrop", *(["afn"] if kind == "OpenAIGPT" else [])):
        assert getattr(back.config, name) == getattr(config, name), name


def test_ours_to_release_and_back_bit_for_bit(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = decoder(tokenizer)
    export_release(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"params_{number}.npy" for number in range(10)),
        "params_shapes.json",
    ]
    assert comes_back(model, tmp_path)


def test_a_release_written_by_us_has_the_bytes_of_one_written_plainly(tmp_path: Path) -> None:
    theirs = hugging_face()
    write_release(tmp_path / "plain", theirs)
    export_release(GPT.load(tmp_path / "plain"), tmp_path / "ours")
    for number in range(10):
        name = f"params_{number}.npy"
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    shapes = [json.loads((tmp_path / kind / "params_shapes.json").read_text()) for kind in ("ours", "plain")]
    assert shapes[0] == shapes[1]
    assert shapes[0][:6] == [[16, 24], [50, 24], [1, 24, 72], [72], [1, 24, 24], [24]]


TO_TRANSFORMERS = {"GPT-1": "tokenizer", "GPT-2": "byte_tokenizer"}


@pytest.mark.parametrize(
    ("layout", "changes", "message"),
    [
        ("GPT-1", {"n_vocab": 50}, "found n_vocab = 50, expected the tokenizer's"),
        ("GPT-1", {"n_special": 4}, r"model\.n_special = 4, expected one of 0, 1, 2, 3"),
        ("GPT-1", {"norm_first": True}, "tokenizer: a word one, expected a byte-level one for GPT-2"),
        ("release", {"n_inner": 48}, r"model\.n_inner = 48, expected 4 \* model\.n_embd = 96"),
        ("release", {"norm_first": True}, r"model\.norm_first = True"),
        ("release", {"smeared_keys": True}, r"model\.smeared_keys = True, expected False"),
        ("release", {"n_special": 3}, r"model\.n_special = 3, expected 0"),
        ("release", {"n_head": 4}, r"model\.n_head = 4, expected 12"),
    ],
)
def test_models_that_a_foreign_layout_cannot_hold_are_refused(
    tmp_path: Path, request: pytest.FixtureRequest, layout: str, changes: dict[str, Any], message: str
) -> None:
    words: Tokenizer = request.getfixturevalue(TO_TRANSFORMERS.get(layout, "tokenizer"))
    model = decoder(words, **changes)
    write = partial(export_release, model) if layout == "release" else partial(export_hugging_face, model, words)
    with pytest.raises(InputError, match=message):
        write(tmp_path / "x")
    assert not (tmp_path / "x").exists()


# The exported tokenizer -----------------------------------------------------------------------------------------------


def exported(tmp_path: Path, tokenizer: Tokenizer, n_special: int = 0) -> transformers.OpenAIGPTTokenizer:
    export_hugging_face(decoder(tokenizer, n_special=n_special), tokenizer, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs) is transformers.OpenAIGPTTokenizer
    same = transformers.OpenAIGPTTokenizer.from_pretrained(tmp_path)
    assert all(same.encode(text) == theirs.encode(text) for text in PLAIN)
    return theirs


def test_plain_text_gets_the_same_ids(tmp_path: Path, tokenizer: Tokenizer) -> None:
    theirs = exported(tmp_path, tokenizer)
    assert len(theirs) == tokenizer.n_vocab
    assert (theirs.unk_token_id, theirs.model_max_length) == (0, TINY.n_ctx)
    for text in (*PLAIN, "kingqueen", "zebra xylophone", "ж the"):  # words of several pieces, unknown pieces
        assert theirs.encode(text) == tokenizer.encode(text), text
    assert theirs.decode(tokenizer.encode("The old king")) == "the old king"


def test_where_transformers_reads_text_in_another_way(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """What the docstring of the export says, so that it is noticed if transformers changes."""
    theirs = exported(tmp_path, tokenizer)
    same_as = {"the\nking": "the king", "don't": "don ' t", "...": ". . .", "thé king": "the king"}
    for text, plain in same_as.items():
        assert theirs.encode(text) == tokenizer.encode(plain) != tokenizer.encode(text), text
    assert theirs.encode("<unk>") == [0] != tokenizer.encode("<unk>")


def test_the_special_tokens_of_a_fine_tuned_decoder_are_tokens_of_the_export(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    theirs = exported(tmp_path, tokenizer, n_special=3)
    n = tokenizer.n_vocab
    assert len(theirs) == n + 3
    assert theirs.convert_tokens_to_ids(list(SPECIAL_NAMES)) == [n, n + 1, n + 2]
    assert theirs.encode("_start_ the king _delimiter_ tea _classify_") == [
        n, *tokenizer.encode("the king"), n + 1, *tokenizer.encode("tea"), n + 2,
    ]  # fmt: skip


def test_the_released_vocabulary_gives_plain_text_the_same_ids(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(real_data("openai-gpt"))
    theirs = exported(tmp_path, tokenizer)
    text = "the quick brown fox , who was 42 , jumped over the lazy dog . was it quick ? antidisestablishmentarianism !"
    assert theirs.encode(text) == tokenizer.encode(text)
    assert 0 not in theirs.encode(text)


def test_an_output_layer_of_its_own_is_left_to_transformers(tmp_path: Path) -> None:
    config = transformers.OpenAIGPTConfig(
        vocab_size=50, n_positions=16, n_embd=24, n_layer=1, n_head=2, tie_word_embeddings=False
    )
    theirs = transformers.OpenAIGPTLMHeadModel(config).eval()
    theirs.save_pretrained(tmp_path)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    torch.testing.assert_close(load_model(str(tmp_path))(ids), theirs(ids).logits)


@pytest.mark.parametrize("kind", [torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_quantised_numbers_are_no_weights(kind: torch.dtype) -> None:
    network = GPT(TINY)
    tensors = {**network.state_dict(), "tokens.weight": network.tokens.weight.detach().to(kind)}
    with pytest.raises(InputError, match=r"file: tokens.weight holds \w+, expected floating-point numbers"):
        GPT(TINY).fill(tensors, "file")
