"""tokenizer.json files of many kinds, whose ids, sequences and special pieces are transformers'."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Library

from gptcore.base.errors import InputError
from gptcore.config import ModelConfig
from gptcore.data.masking import PieceTable
from gptcore.evaluation.generate import generate
from gptcore.evaluation.inference import text_perplexity
from gptcore.models.transformer import GPT
from gptcore.nlu import REGISTRY
from gptcore.nlu.inputs import EncoderReader
from gptcore.text.alignment import Aligner
from gptcore.text.byte_bpe import ByteTokenizer
from gptcore.text.library import LibraryTokenizer
from gptcore.text.tokenizer import Tokenizer
from tests.gptcore.test_wordpiece import TEXTS

transformers = pytest.importorskip("transformers")

GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BOOKS = [*TEXTS, "The King's 12 horses cost 345 pounds.", "Ein naïves Café, 中国 und 日本.", "a\tb\n\nc"]
HOSTILE = [
    *(
        "",
        " ",
        "\x00",
        "a\x00b",
        "Hello King",
        "  leading and trailing  ",
        "\n\n a\tb ",
        "12345 3.14",
        "a  b   c",
        "\r\n",
    ),
    *(
        "[SEP] x [CLS]",
        "a[MASK]b [MASK]",
        "<s>a</s>",
        "king<|endoftext|>",
        " <mask> ",
        "<unk>",
        "[PAD]",
        "<extra> Extra",
        "▁the",
    ),
    *(
        "naïve café Ünïcödé",
        "e\u0301 ﬁ ①",
        "İSTANBUL",
        "中国人abc",
        "😀👨‍👩‍👧",
        "\u200b\ufeff",
        "don't we're",
        "x" * 150 + " y",
    ),
]
Folder = Callable[..., Path]


def wordpiece(normalizer: Any = None, pieces: list[str] = BERT, texts: list[str] = BOOKS, **settings: Any) -> Library:
    library = Library(models.WordPiece(unk_token=pieces[1], **settings))
    library.normalizer = normalizer or normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=150, special_tokens=pieces))
    return library


def bert(*args: Any, joint: str = "[SEP]:0", second: int = 1, **settings: Any) -> Library:
    library = wordpiece(*args, **settings)
    ids = [(piece, library.token_to_id(piece)) for piece in ("[CLS]", "[SEP]")]
    pair = f"[CLS]:0 $A:0 {joint} $B:{second} [SEP]:{second}"
    library.post_processor = processors.TemplateProcessing("[CLS]:0 $A:0 [SEP]:0", pair, ids)
    return library


def byte_level(special: list[str], before: Any = None, normalizer: Any = None, **settings: Any) -> Library:
    library = Library(models.BPE())
    own = pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **settings})
    library.pre_tokenizer = pre_tokenizers.Sequence([before, own]) if before else own
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    if normalizer:
        library.normalizer = normalizer
    library.train_from_iterator(BOOKS, trainer)
    return library


def roberta() -> Library:
    library = byte_level(ROBERTA)
    library.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return library


def llama() -> Library:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trained = Library(models.BPE())
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained.train_from_iterator(BOOKS[:6], trainers.BpeTrainer(vocab_size=400, special_tokens=pieces))
    document = json.loads(trained.to_str())
    document["model"] |= {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    document["added_tokens"] = document["added_tokens"][:3]
    library = Library.from_str(json.dumps(document))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    library.decoder = decoders.Sequence(parts)
    library.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B:1", [("<s>", 1)])
    return library


def unigram(single: str = "<s> $A </s>", pair: str = "<s> $A </s> </s> $B </s>") -> Library:
    library = Library(models.Unigram())
    library.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=ROBERTA, unk_token="<unk>", show_progress=False)
    library.train_from_iterator(BOOKS, trainer)
    library.post_processor = processors.TemplateProcessing(single, pair, [("<s>", 0), ("</s>", 2)])
    return library


def qwen() -> Library:
    split = pre_tokenizers.Split(
        Regex(r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"), "isolated"
    )
    return byte_level(["<|endoftext|>"], split, normalizers.NFC(), use_regex=False)


def cleaned(model: Any) -> str:
    library = Library(model)
    library.normalizer = normalizers.BertNormalizer()  # drops what is for private use
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    return library.to_str()


def with_tokens(library: Library, *tokens: AddedToken) -> Library:
    library.add_tokens(list(tokens))
    return library


EXTRA = (AddedToken("<extra>", lstrip=True), AddedToken("Extra", single_word=True, normalized=True))
KINDS: Mapping[str, Callable[[], Library]] = {
    # seven that were misread
    "prefix space": lambda: byte_level(["<|endoftext|>"], add_prefix_space=True),
    "digits": lambda: byte_level(["<|endoftext|>"], pre_tokenizers.Digits(individual_digits=True)),
    "lower case": lambda: byte_level(["<|endoftext|>"], normalizer=normalizers.Lowercase()),
    "added tokens": lambda: with_tokens(byte_level(["<|endoftext|>"]), *EXTRA),
    "accents": lambda: bert(normalizers.BertNormalizer(strip_accents=False)),
    "cased": lambda: bert(normalizers.BertNormalizer(lowercase=False)),
    "Chinese": lambda: bert(normalizers.BertNormalizer(handle_chinese_chars=False)),
    # kinds of models
    "BERT": bert,
    "a long word": lambda: bert(max_input_chars_per_word=200),
    "GPT-2": lambda: byte_level(["<|endoftext|>"]),
    "RoBERTa": roberta,
    "MPNet": lambda: bert(joint="[SEP]:0 [SEP]:0", second=0),
    "a mask with its blank": lambda: with_tokens(bert(), AddedToken("[MASK]", lstrip=True, special=True)),
    "Llama 2": llama,
    "XLM-R": unigram,
    "T5": lambda: unigram("$A </s>", "$A </s> $B </s>"),
    "XLNet": lambda: unigram("$A </s> <s>", "$A </s> $B </s> <s>"),
    "Qwen2": qwen,
}
SPECIALS = {
    **dict.fromkeys(
        ("accents", "cased", "Chinese", "BERT", "a long word", "a mask with its blank"), (0, 1, 2, 3, 4, 1, 2)
    ),
    "MPNet": (0, 1, 2, 3, 4, 2, 1),
    **dict.fromkeys(("RoBERTa", "XLM-R"), (1, 3, 0, 2, 4, 2, 1)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made: dict[str, Path] = {}

    def write(kind: str, settings: Mapping[str, Any] = GENERIC, **files: Any) -> Path:
        name = json.dumps([kind, settings, files])
        if name not in made:
            made[name] = tmp_path_factory.mktemp("folder")
            library = KINDS[kind]()
            library.enable_truncation(4)
            pad = "[PAD]" if library.token_to_id("[PAD]") == 0 else "<pad>"
            library.enable_padding(length=8, pad_token=pad)
            library.save(str(made[name] / "tokenizer.json"))
            for file, value in {"tokenizer_config": settings, **files}.items():
                (made[name] / f"{file}.json").write_text(json.dumps(value), encoding="utf-8")
        return made[name]

    return write


def theirs(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def plain(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


@every_kind
def test_ids_are_transformers(kind: str, folder: Folder, tmp_path: Path) -> None:
    """And they stay so, saved and sent."""
    tokenizer, reference = Tokenizer.load(folder(kind)), theirs(folder(kind))
    tokenizer.save(tmp_path)
    for each in (tokenizer, Tokenizer.load(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert isinstance(each, LibraryTokenizer)
        assert each.digest == tokenizer.digest
        assert each.specials == tokenizer.specials
        assert each.encode_batch(HOSTILE) == list(map(each.encode, HOSTILE))
    again = theirs(tmp_path)
    assert reference.special_tokens_map.items() <= again.special_tokens_map.items()
    for text in HOSTILE:
        assert tokenizer.encode(text) == plain(reference, text) == plain(again, text), text
        assert again(text, "a king")["input_ids"] == reference(text, "a king")["input_ids"]
    specials = SPECIALS.get(kind)
    assert tokenizer.specials == (specials and type(tokenizer.specials)(*specials))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(list(KINDS)), parts=st.lists(st.sampled_from(HOSTILE) | st.text(max_size=6), max_size=6))
def test_ids_of_any_text_are_transformers(folder: Folder, kind: str, parts: list[str]) -> None:
    text = "".join(parts)
    tokenizer = Tokenizer.load(folder(kind))
    ids = tokenizer.encode(text)
    assert ids == plain(theirs(folder(kind)), text)
    places = Aligner(tokenizer).align(text)
    assert places.ids.tolist() == ids
    assert ((places.starts >= 0) & (places.starts <= places.ends) & (places.ends <= len(text))).all()


@pytest.mark.parametrize("kind", SPECIALS)
def test_sequences_are_what_the_post_processor_builds(kind: str, folder: Folder) -> None:
    """Also where a text has the name of the separator."""
    tokenizer, library = Tokenizer.load(folder(kind)), theirs(folder(kind)).backend_tokenizer
    library.no_truncation()
    library.no_padding()
    pieces = list(tokenizer.vocabulary)
    sep = pieces[tokenizer.specials.sep]
    for task, texts in (("sst2", [f"the king {sep} rode"]), ("rte", [f"a {sep} king", "the old horse"])):
        reader = EncoderReader(REGISTRY[task], 40, tokenizer.n_vocab, pieces=tokenizer.specials)
        fields = [np.asarray(tokenizer.encode(text)) for text in texts]
        sequences, cut = reader.sequences(fields, ())
        batch, built = reader.collate([sequences], [0]), library.encode(*texts)
        assert not cut
        assert batch.tokens[0, 0].tolist() == built.ids
        assert batch.segments[0, 0].tolist() == built.type_ids
    table = PieceTable.of(tokenizer)
    assert table.special[list(tokenizer.specials.ids)].all()
    assert pieces[int(np.flatnonzero(table.tail)[0])][0] not in "▁Ġ"


@pytest.mark.parametrize("kind", ["GPT-2", "Qwen2", "Llama 2"])
def test_a_decoder_is_told_what_stands_before_and_behind_a_text(kind: str, folder: Folder) -> None:
    llama = kind == "Llama 2"
    ends = {"eos_token": "</s>" if llama else "<|endoftext|>"}
    tokenizer = Tokenizer.load(folder(kind, GENERIC | ends))
    assert (tokenizer.opening, tokenizer.beginning, tokenizer.end_of_text) == (((1,), 1, 2) if llama else ((), 0, 0))
    texts = tokenizer.encode("the king"), tokenizer.encode_next("rode"), tokenizer.encode_next(".")
    assert tokenizer.decode([index for ids in texts for index in ids]) == "the king rode."
    ids = tokenizer.encode("the king 中国 rode 😀 on")
    add = tokenizer.following(ids[0])
    assert tokenizer.decode(ids[:1]) + "".join(map(add, ids[1:])) == tokenizer.decode(ids) == "the king 中国 rode 😀 on"
    torch.manual_seed(0)
    model = GPT(ModelConfig(n_vocab=tokenizer.n_vocab, n_ctx=16, n_layer=1, n_head=2, n_embd=16)).eval()
    assert len(list(generate(model, tokenizer, "the king", max_tokens=3))) <= 3
    assert text_perplexity(model, tokenizer, [b"the king rode"])["tokens"] == len(tokenizer.encode("the king rode"))
    said = GENERIC | ends | {"bos_token": ends["eos_token"], "add_bos_token": True}
    assert Tokenizer.load(folder(kind, said)).opening == (2 if llama else 0,)
    assert Tokenizer.load(folder(kind, said | {"add_bos_token": False})).opening == ()


def test_pieces_stand_for_characters_without_white_space(folder: Folder) -> None:
    text = "The  king's café\n12 horses"
    for kind in ("RoBERTa", "BERT"):
        found = Aligner(Tokenizer.load(folder(kind))).align(text)
        shown = [text[start:end] for start, end in zip(found.starts, found.ends, strict=True)]
        assert "".join(shown) == "".join(text.split())


TOKEN = {"content": "king", "special": False}
MASK = {"__type": "AddedToken", "content": "king", "lstrip": True}
NO_TYPE = {"content": "[MASK]", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False}


@pytest.mark.parametrize(
    ("kind", "settings", "files"),
    [
        ("GPT-2", {"eos_token": "<|endoftext|>", "pad_token": "<new>", "additional_special_tokens": ["<b>"]}, {}),
        (
            "GPT-2",
            {
                "added_tokens_decoder": {"4": TOKEN | {"content": "$"}, "330": TOKEN | {"content": "<b>"}},
                "pad_token": "<pad>",
            },
            {},
        ),
        ("BERT", {"split_special_tokens": True}, {}),
        ("BERT", {"extra_special_tokens": {"image_token": "<extra>"}, "mask_token": MASK}, {}),
        ("a mask with its blank", {"mask_token": "[MASK]"}, {}),
        ("BERT", {}, {"special_tokens_map": {"additional_special_tokens": ["the"]}}),
        ("BERT", {}, {"special_tokens_map": {"mask_token": NO_TYPE}}),
        ("BERT", {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": None}, {}),
        ("prefix space", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True, "pad_token": "<pad>"}, {}),
    ],
)
def test_settings_beside_the_file_are_obeyed(
    kind: str, settings: dict[str, Any], files: dict[str, Any], folder: Folder, tmp_path: Path
) -> None:
    where = folder(kind, GENERIC | settings, **files)
    tokenizer, reference = Tokenizer.load(where), theirs(where)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.digest, tokenizer.n_vocab) == (tokenizer.digest, len(reference))
    for text in (*HOSTILE, "a <new>", "<b>$king", "the king"):
        assert tokenizer.encode(text) == plain(reference, text) == plain(theirs(tmp_path), text)


def test_a_model_s_rows_and_roles_count(folder: Folder) -> None:
    """A vocabulary may be padded, and config.json may be all that says which token ends a text."""
    config = {"vocab_size": 400, "eos_token_id": 0, "pad_token_id": [1]}
    padded = Tokenizer.load(folder("GPT-2", GENERIC, config=config))
    assert (padded.n_vocab, padded.end_of_text, padded.decode([399])) == (400, 0, "")
    assert PieceTable.of(Tokenizer.load(folder("BERT", config={"vocab_size": 200}))).special[150:].all()


@pytest.mark.parametrize(
    ("kind", "settings", "files", "message"),
    [
        (
            "cased",
            {"tokenizer_class": "BertTokenizer"},
            {},
            "BertNormalizer.lowercase = False, expected True",
        ),
        ("BERT", {"do_lower_case": False}, {}, "BertNormalizer.lowercase = True, expected False as do_lower_case of"),
        ("accents", {"strip_accents": True}, {}, "BertNormalizer.strip_accents = False, expected True"),
        ("Chinese", {"tokenize_chinese_chars": True}, {}, "handle_chinese_chars = False, expected True"),
        ("prefix space", {"add_prefix_space": False}, {}, "ByteLevel.add_prefix_space = True, expected False"),
        ("prefix space", {"tokenizer_class": None}, {"config": {"model_type": "gpt2"}}, "add_prefix_space = True"),
        ("BERT", {"added_tokens_decoder": {"900": TOKEN}}, {}, "has the added token 'king' as id 900, expected"),
        ("BERT", {"added_tokens_decoder": {"x": 1}}, {}, "tokenizer_config.json: tokenizers .* reads no text by it"),
        ("BERT", {"cls_token": 5}, {}, "tokenizer_config.json: tokenizers .* reads no text by it"),
        (
            "BERT",
            {},
            {"added_tokens": {"<new>": 130}},
            "found the added token '<new>', expected one of",
        ),
        ("BERT", {}, {"config": []}, "config.json: found a JSON list, expected an object of settings"),
    ],
)
def test_settings_that_say_something_else_are_refused(
    kind: str, settings: dict[str, Any], files: dict[str, Any], message: str, folder: Folder
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        Tokenizer.load(folder(kind, GENERIC | settings, **files))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"tokenizer\.json: found a JSON list, expected an object with a model"),
        ("{", r"tokenizer\.json: line 1: not JSON"),
        ("{}", r"tokenizer\.json with tokenizer_config\.json: tokenizers \d.* reads no text by it"),
        ('{"model": {"type": "Other"}}', "reads no text by it"),
        (Library(models.WordPiece({"a": 0}, unk_token="[UNK]")).to_str(), r"reads no text by it .*\[UNK\]"),
        (cleaned(models.WordPiece({"a": 0}, unk_token="[UNK]")), r"reads no text by it .*\[UNK\]"),
        (cleaned(models.Unigram([(chr(code), -1.0) for code in range(32, 127)])), "reads no text by it .*unk_id"),
        (Library(models.BPE()).to_str(), r"reads no text by it .*no ids"),
        ('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}}', "dropout = 0.1, expected none"),
    ],
)
def test_a_broken_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as refused:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(refused.value)


def test_half_a_surrogate_pair_is_no_text(folder: Folder) -> None:
    tokenizer = Tokenizer.load(folder("BERT"))
    for use in (tokenizer.encode, lambda text: tokenizer.encode_batch([text])):
        with pytest.raises(InputError, match="character 2: half of a surrogate pair"):
            use("ab\ud800")


def test_what_our_own_readers_would_lose_is_refused(tmp_path: Path) -> None:
    """Where there is no tokenizer.json."""
    own = ByteTokenizer.train(TEXTS, 5)
    settings = "tokenizer_config.json"
    for file, said, message in (
        ("added_tokens.json", {"<new>": own.n_vocab}, "found the added token '<new>', expected one of"),
        (settings, {"added_tokens_decoder": {"9": TOKEN}}, "found the added token 'king', expected one of"),
        (settings, {"add_prefix_space": True}, "add_prefix_space = True, expected False"),
    ):
        folder = tmp_path / message
        own.save(folder)
        (folder / file).write_text(json.dumps(said), encoding="utf-8")
        with pytest.raises(InputError, match=message):
            Tokenizer.load(folder)
        (folder / file).write_text("{}", encoding="utf-8")
        assert Tokenizer.load(folder).digest == own.digest
