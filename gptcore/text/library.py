"""A ``tokenizer.json`` obeyed as a whole: read by the library `tokenizers` as it is, as transformers' fast ones are.

Normalizer, pre-tokenizer, added tokens, model, decoder and post-processor are the file's. So the name of a special
token in a text gives its id, as in transformers, unless ``tokenizer_config.json`` says ``split_special_tokens``. What
the file says of truncation and padding is dropped: texts are cut and padded elsewhere. Tokens that only the settings
beside the file name are added, as transformers does; a setting that transformers would put in the place of what the
file says is refused. (Some classes of its version 5 build the rest anew from the vocabulary: a folder that is saved
here names one that does not.)

Which pieces a sequence is built of is told by the post-processor, which is run and not read: an encoder's builds
``[CLS] A [SEP]`` of a text, and ``[CLS] A [SEP] B [SEP]`` of two, with any pieces in these roles and one or more [SEP]
between the two; a decoder's puts nothing around a text, or something before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from gptcore.base.errors import InputError, require
from gptcore.base.files import canonical_json, sha256_json, write_bytes_atomic, write_json_atomic
from gptcore.text.byte_bpe import CLOSING
from gptcore.text.parts import encodable
from gptcore.text.tokenizer import Specials, Tokenizer
from gptcore.text.vocabulary import END_OF_TEXT, LIBRARY_FILE, SETTINGS_FILE, TokenizerFolder, parse_object, read_text

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Settings that name a special token, in the order in which transformers gives ids to those that have none."""
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_BESIDE = ("clean_up_tokenization_spaces", "padding_side", "chat_template")
_KEPT = (
    *(*_NAMED, *_LISTS, "split_special_tokens", "add_bos_token", "add_eos_token", "n_vocab"),
    *("model_max_length", *_BESIDE),
)
"""Settings that a saved folder has, too; what the others say stands in its ``tokenizer.json``."""
_USUAL = {"pad": ("[PAD]", "<pad>"), "unk": ("[UNK]", "<unk>"), "mask": ("[MASK]", "<mask>"), "eos": (END_OF_TEXT,)}
_OVERRIDES = (
    ("BertNormalizer", "lowercase", "do_lower_case", True),
    ("BertNormalizer", "strip_accents", "strip_accents", None),
    ("BertNormalizer", "handle_chinese_chars", "tokenize_chinese_chars", True),
    ("ByteLevel", "add_prefix_space", "add_prefix_space", False),
)
"""A field of a normalizer or pre-tokenizer, the setting that transformers puts in its place, and this one's default."""
_PROBE = " ".join(map(chr, (*range(1, 256), 0x12000, 0xFDD0, 0xFFFD, 0x10FFFD)))
"""A text with characters of many kinds, the last of which hardly any vocabulary has, and some normalizers drop."""
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Transformers' classes by which fields without a setting are the file's."""


class LibraryTokenizer(Tokenizer):
    """A ``tokenizer.json``, whatever is in it."""

    kind = _files = LIBRARY_FILE

    def __init__(self, document: str, settings: Mapping[str, Any], name: str = LIBRARY_FILE) -> None:
        """Have the library read the file.

        :param document: the file's text.
        :param settings: what the files beside it say.
        :param name: what messages call the file.
        :raises InputError: the installed library cannot read it, its ids are drawn, it cannot encode every text, or a
            setting says something else.
        """
        parsed = parse_object(document, name, "an object with a model")
        _check_agreement(parsed, settings, name)
        try:
            self._library = library = tokenizers.Tokenizer.from_str(document)
            if not library.encode(_PROBE, "a").ids:
                raise ValueError("no ids for any character")
            settings = {**(library.padding or {}), **{key: said for key, said in settings.items() if said is not None}}
            named = list(_named_tokens(settings))
        except BaseException as error:  # a panic of Rust's is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            said = f"tokenizers {tokenizers.__version__} reads no text by it ({' '.join(str(error).split())[:200]})"
            raise InputError(f"{name} with {SETTINGS_FILE}: {said}, expected files for any text") from None
        dropout = parsed["model"].get("dropout")
        require(not dropout, f"{name}: model.dropout = {dropout}, expected none: ids would differ from time to time")
        library.no_padding()
        library.no_truncation()
        library.encode_special_tokens = bool(settings.get("split_special_tokens"))
        known = {token.content for token in library.get_added_tokens_decoder().values()}
        for index, token in named:
            if index is not None or token.content not in known:  # of a name alone the file's token is meant
                library.add_tokens([token])
            known.add(token.content)
            its = library.token_to_id(token.content)
            said = f"{name}: {SETTINGS_FILE} has the added token {token.content!r:.60} as id {index}"
            require(index in (None, its), f"{said}, expected {its}")
        added = library.get_added_tokens_decoder()
        flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
        tokens = [{"id": i, **{flag: getattr(added[i], flag) for flag in flags}} for i in sorted(added)]
        self._document = canonical_json({**parsed, "added_tokens": tokens, "truncation": None, "padding": None})
        ids = {role: index for role in _NAMED if type(index := settings.get(f"{role}_id")) is int and index in added}
        self._settings: dict[str, Any] = {role: added[index].content for role, index in ids.items()}
        self._settings |= {key: settings[key] for key in _KEPT if key in settings}
        self._settings |= {role: _added_token(settings[role]).content for role in _NAMED if role in settings}
        pieces = {index: piece for piece, index in library.get_vocab(with_added_tokens=True).items()}
        rows = settings.get("n_vocab", settings.get("vocab_size"))  # a model may have some that are no piece's
        size = self._settings["n_vocab"] = max(1 + max(pieces), rows if type(rows) is int else 0)
        require(size <= 1 << 20, f"{name}: found {size} ids, with the model's vocab_size, expected at most {1 << 20}")
        super().__init__({pieces.get(index, f"[unused0{index}]"): index for index in range(size)})
        self.kind = _kind(parsed, self._pieces)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._document, self._settings)

    # --- where tokenizers come from and go to ---

    @classmethod
    def _in_folder(cls, folder: TokenizerFolder) -> Tokenizer | None:
        if not folder.has(LIBRARY_FILE):
            return None
        model, settings = folder.object("config.json"), folder.object(SETTINGS_FILE)
        if "added_tokens_decoder" not in settings:  # else transformers takes no notice of the older file
            settings |= folder.object("special_tokens_map.json")
        return cls(read_text(folder.at(LIBRARY_FILE)), {**model, **settings}, folder.at(LIBRARY_FILE))

    def save(self, folder: str | Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``, by which transformers reads the same tokenizer."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(folder / LIBRARY_FILE, self._document.encode("utf-8"))
        added = self._library.get_added_tokens_decoder()
        roles = zip(Specials._fields, self.specials.ids if self.specials else (), strict=False)
        named = {f"{role}_token": added[index].content for role, index in roles if index in added}
        write_json_atomic(folder / SETTINGS_FILE, {**named, **self._settings, "tokenizer_class": _GENERIC[0]})

    # --- what a tokenizer is ---

    @cached_property
    def specials(self) -> Specials | None:
        """The ids of the special pieces by role, where the post-processor is an encoder's.

        [CLS] and [SEP] are those that it puts there. The others are named by settings, or have one of the usual names;
        a role that no piece has is played by another one.
        """
        (cls, _, sep, _), (first, between, last, segment) = self._built(1), self._built(2)
        if not (len(cls) == len(sep) == 1 and (cls, sep) == (first, last) and {*between} == {*sep}):
            return None
        pad = self._named("pad", sep[0])
        unk = self._named("unk", pad)
        return Specials(pad, unk, *cls, *sep, self._named("mask", unk), joints=len(between), segments=1 + segment)

    @cached_property
    def opening(self) -> tuple[int, ...]:
        before, _, behind, _ = self._built(1)
        if (said := self._settings.get("add_bos_token")) is None:
            return () if behind else before
        bos = self._named("bos", None)
        return (bos,) if said and bos is not None else ()

    @property
    def beginning(self) -> int | None:
        return self.opening[-1] if self.opening else self._named("bos", self.end_of_text)

    @property
    def end_of_text(self) -> int | None:
        """The id that ends a document or an answer; None in an encoder's vocabulary."""
        return None if self.specials else self._named("eos", None)

    @property
    def beside(self) -> dict[str, Any]:
        return {name: self._settings[name] for name in _BESIDE if name in self._settings}

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the file, whatever its formatting, and of the roles of its special pieces."""
        roles = {"specials": self.specials, "opening": self.opening, "ends": (self.beginning, self.end_of_text)}
        reads = {"tokenizer.json": self._document, "split": self._library.encode_special_tokens}
        return sha256_json({**reads, "n_vocab": self.n_vocab, **roles})

    def _named(self, role: str, other: Any) -> Any:
        """The id of the piece in a role, by the settings or a usual name, or ``other``."""
        named = self._settings.get(f"{role}_token")
        names = _USUAL.get(role, ()) if named is None else (named,)
        return next((self.vocabulary[name] for name in names if name in self.vocabulary), other)

    def _built(self, n_texts: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
        """The ids that the post-processor puts before, between and behind texts; the type of the last text's ids."""
        probes = (self._library.encode(text, add_special_tokens=False) for text in ("a", *self._pieces))
        probe = next(encoding for encoding in probes if encoding.ids)
        built = self._library.post_process(probe, probe if n_texts > 1 else None)
        ids, added, size = tuple(built.ids), built.special_tokens_mask, len(probe.ids)
        first, last = added.index(0), len(added) - added[::-1].index(0)
        return ids[:first], ids[first + size : last - size], ids[last:], built.type_ids[last - 1]

    # --- text -> ids -> text ---

    def encode(self, text: str) -> list[int]:
        """Ids of a text as the file has it read, without what the post-processor puts around it.

        :raises InputError: half of a surrogate pair, which is no text that UTF-8 could hold.
        """
        ids: list[int] = self._library.encode(encodable(text), add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        encodings = self._library.encode_batch_fast(list(map(encodable, texts)), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_next(self, text: str) -> list[int]:
        """Ids of a text that goes on another one: behind a space, unless it begins with a mark that takes none."""
        apart = text if text[:1] in CLOSING else f" {text}"
        before, whole = self.encode("a"), self.encode(f"a{apart}")
        return whole[len(before) :] if whole[: len(before)] == before else self.encode(apart)

    def located(self, text: str) -> list[tuple[int, int, int]]:
        """Each id of a text, its first character behind white space, and the one behind its last."""
        encoding = self._library.encode(encodable(text), add_special_tokens=False)
        places = zip(encoding.ids, encoding.offsets, strict=True)
        return [(index, end - len(text[start:end].lstrip()), end) for index, (start, end) in places]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids by the file's decoder, special pieces by their names.

        :raises InputError: an id outside the vocabulary.
        """
        text: str = self._library.decode(list(self._known(ids)), skip_special_tokens=False)
        return text


def _named_tokens(settings: Mapping[str, Any]) -> Iterator[tuple[int | None, AddedToken]]:
    """The tokens that settings name, in the order in which transformers adds those that a file lacks, and their ids."""
    listed = settings.get("added_tokens_decoder") or {}
    yield from ((int(index), _added_token(listed[index])) for index in sorted(listed, key=int))
    yield from ((None, _added_token(settings[name])) for name in _NAMED if settings.get(name) is not None)
    for name in _LISTS:
        tokens = settings.get(name) or ()
        yield from ((None, _added_token(each)) for each in (tokens.values() if isinstance(tokens, dict) else tokens))


def _added_token(said: Any) -> AddedToken:
    fields = said if isinstance(said, dict) else {"content": said, "normalized": False}
    return AddedToken(**{"special": True, **{key: value for key, value in fields.items() if key != "__type"}})


def _components(part: Any) -> Iterator[Mapping[str, Any]]:
    """A normalizer, pre-tokenizer or decoder, and those that it is made of."""
    if isinstance(part, dict):
        yield part
        for inner in part.values():
            yield from (each for item in (inner if isinstance(inner, list) else ()) for each in _components(item))


def _check_agreement(document: Mapping[str, Any], settings: Mapping[str, Any], name: str) -> None:
    """:raises InputError: settings by which transformers reads texts otherwise than the file says."""
    of_class = (settings.get("tokenizer_class") or settings.get("model_type") or _GENERIC[0]) not in _GENERIC
    for part in (*_components(document.get("normalizer")), *_components(document.get("pre_tokenizer"))):
        for kind, field, setting, default in _OVERRIDES:
            if part.get("type") != kind:
                continue
            found, said = part.get(field), settings.get(setting)
            if said is None:
                said = default if of_class else found
            if field == "strip_accents":  # where nothing is said it goes with the case
                found, said = (part.get("lowercase") if each is None else each for each in (found, said))
            where = f"{name}: {kind}.{field} = {found!r:.60}"
            require(found == said, f"{where}, expected {said!r:.60} as {setting} of {SETTINGS_FILE} is to transformers")


def _kind(document: Mapping[str, Any], pieces: Iterable[str]) -> str:
    """The kind whose marks of words the pieces have."""
    if any(part.get("type") == "ByteLevel" for part in _components(document.get("decoder"))):
        return "byte-level"
    if document["model"].get("end_of_word_suffix"):
        return "word"
    return "SentencePiece" if any(piece[0:1] == "▁" and piece != "▁" for piece in pieces) else "WordPiece"
