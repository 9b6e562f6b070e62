"""tokenizer.json files of many kinds, whose ids, sequences and special pieces are transformers'."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Library

from gptcore.text.alignment import Aligner
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
        "a[MASK]b",
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
    "Llama 2": llama,
    "XLM-R": unigram,
    "T5": lambda: unigram("$A </s>", "$A </s> $B </s>"),
    "XLNet": lambda: unigram("$A </s> <s>", "$A </s> $B </s> <s>"),
    "Qwen2": qwen,
}
SPECIALS = {
    **dict.fromkeys(("accents", "cased", "Chinese", "BERT", "a long word"), (0, 1, 2, 3, 4, 1, 2)),
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
