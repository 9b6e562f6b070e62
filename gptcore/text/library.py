"""A ``tokenizer.json`` obeyed as a whole: read by the library `tokenizers` as it is, as transformers' fast ones are.

Normalizer, pre-tokenizer, added tokens, model, decoder and post-processor are the file's. So the name of a special
token in a text gives its id, as in transformers, unless ``tokenizer_config.json`` says ``split_special_tokens``. What
the file says of truncation and padding is not meant for texts that are cut and padded here, and is dropped. Tokens that
only the settings beside it name are added, as transformers does. A setting that transformers would put in the place of
what the file says is refused.

Which pieces a sequence is built of is told by the post-processor, which is run and not read: an encoder's builds
``[CLS] A [SEP]`` of a text, and ``[CLS] A [SEP] B [SEP]`` of two, with any pieces in these roles and one or more [SEP]
between the two; a decoder's puts nothing around a text, or something before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken

from gptcore.base.errors import InputError, require
from gptcore.base.files import canonical_json, sha256_json, write_bytes_atomic, write_json_atomic
from gptcore.text.byte_bpe import CLOSING
from gptcore.text.parts import encodable
from gptcore.text.tokenizer import Specials, Tokenizer
from gptcore.text.vocabulary import END_OF_TEXT, LIBRARY_FILE, SETTINGS_FILE, TokenizerFolder, parse_object, read_text

_MAP_FILE, _MODEL_FILE = "special_tokens_map.json", "config.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Settings that name a special token, in the order in which transformers gives ids to those that have none."""
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_KEPT = (
    *(*_NAMED, *_LISTS),
    *("split_special_tokens", "add_bos_token", "add_eos_token", "n_vocab"),
    *("model_max_length", "clean_up_tokenization_spaces", "padding_side", "chat_template"),
)
"""Settings that a saved folder keeps; what the others say stands in the saved ``tokenizer.json``."""
_USUAL = {"pad": ("[PAD]", "<pad>"), "unk": ("[UNK]", "<unk>"), "mask": ("[MASK]", "<mask>"), "eos": (END_OF_TEXT,)}
_OVERRIDES: Mapping[str, Mapping[str, tuple[str, Any]]] = {
    "BertNormalizer": {
        "do_lower_case": ("lowercase", True),
        "strip_accents": ("strip_accents", None),
        "tokenize_chinese_chars": ("handle_chinese_chars", True),
    },
    "ByteLevel": {"add_prefix_space": ("add_prefix_space", False)},
}
"""Type of a normalizer or pre-tokenizer -> the setting that transformers puts in the place of its field, and the value
that this has without the setting."""
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes of transformers without such values."""
_WITH_DEFAULTS = ("bert", "distilbert", "electra", "mpnet", "gpt2", "roberta")
"""Types of models whose class of tokenizers is another one, where none is named."""


class _Built(NamedTuple):
    """What a post-processor puts around texts."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    behind: tuple[int, ...]
    segment: int
    """The type of the last text's ids."""


class LibraryTokenizer(Tokenizer):
    """A ``tokenizer.json``, whatever is in it."""

    kind = LIBRARY_FILE
    _files = LIBRARY_FILE

    def __init__(self, document: str, settings: Mapping[str, Any], name: str = LIBRARY_FILE) -> None:
        """Have the library read the file.

        :param document: the file's text; tokens that the settings name are among its added ones.
        :param settings: those of ``tokenizer_config.json``, and ``n_vocab`` of a model with rows that no piece has.
        :param name: what messages call the file.
        :raises InputError: the installed library cannot read it, its ids are drawn, or it cannot encode every text.
        """
        parsed = parse_object(document, name, "an object with a model") | {"truncation": None, "padding": None}
        self._document = canonical_json(parsed)
        self._settings = {key: settings[key] for key in _KEPT if settings.get(key) is not None}
        self._library = _read(self._document, name)
        self._library.encode_special_tokens = bool(settings.get("split_special_tokens"))
        model = parsed["model"]
        require(not model.get("dropout"), f"{name}: model.dropout = {model.get('dropout')}, expected none")
        try:
            self._library.encode("a \U0010fffd")
        except Exception as error:
            raise InputError(f"{name}: model: found no piece for unknown text ({_said(error)}), expected one") from None
        ids = self._library.get_vocab(with_added_tokens=True)
        pieces = {index: piece for piece, index in ids.items()}
        n_vocab = max(1 + max(pieces), settings.get("n_vocab", 0))
        super().__init__({pieces.get(index, f"[unused0{index}]"): index for index in range(n_vocab)})
        self.kind = _kind(parsed, self._pieces)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._document, self._settings)

    # --- where tokenizers come from and go to ---

    @classmethod
    def _in_folder(cls, folder: TokenizerFolder) -> Tokenizer | None:
        if not folder.has(LIBRARY_FILE):
            return None
        name = folder.at(LIBRARY_FILE)
        document = parse_object(read_text(name), name, "an object with a model")
        settings, model = {**_object(folder, _MAP_FILE), **_object(folder, SETTINGS_FILE)}, _object(folder, _MODEL_FILE)
        _check_agreement(document, settings, model, folder)
        library = _read(json.dumps(document), name)
        for index, token in _named_tokens(settings):
            library.add_tokens([token])
            if index is not None and library.token_to_id(token.content) != index:
                where = f"{folder.at(SETTINGS_FILE)}: added_tokens_decoder: {index} = {token.content!r:.60}"
                raise InputError(f"{where}, expected id {library.token_to_id(token.content)}, as {LIBRARY_FILE} has it")
        added = library.get_added_tokens_decoder()
        fields = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
        document["added_tokens"] = [
            {"id": index, **{field: getattr(token, field) for field in fields}}
            for index, token in sorted(added.items())
        ]
        for role in _NAMED:
            index = model.get(f"{role}_id")
            if settings.get(role) is None and type(index) is int and index in added:
                settings[role] = added[index].content
        if type(rows := model.get("vocab_size")) is int and rows > library.get_vocab_size():
            settings["n_vocab"] = rows
        return cls(json.dumps(document), settings, name)

    def save(self, folder: str | Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``, by which transformers reads the same tokenizer."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(folder / LIBRARY_FILE, self._document.encode("utf-8"))
        write_json_atomic(folder / SETTINGS_FILE, {**self._settings, "tokenizer_class": _GENERIC[0]})

    # --- what a tokenizer is ---

    @cached_property
    def specials(self) -> Specials | None:
        """The ids of the special pieces by role, where the post-processor is an encoder's.

        [CLS] and [SEP] are those that it puts there. The others are named by settings, or have one of the usual names;
        a role that no piece has is played by another one.
        """
        one, two = self._built(1), self._built(2)
        if not (len(one.before) == len(one.behind) == 1 and two[::2] == one[::2] and {*two.between} == {*one.behind}):
            return None
        sep = one.behind[0]
        pad = self._named("pad", sep)
        unk = self._named("unk", pad)
        names = (pad, unk, one.before[0], sep, self._named("mask", unk))
        return Specials(*names, joints=len(two.between), segments=1 + two.segment)

    @cached_property
    def opening(self) -> tuple[int, ...]:
        one, said = self._built(1), self._settings.get("add_bos_token")
        if said is None:
            return () if one.behind else one.before
        return (self._id(self._settings["bos_token"]),) if said and "bos_token" in self._settings else ()

    @property
    def beginning(self) -> int | None:
        return self.opening[-1] if self.opening else self._named("bos", self.end_of_text)

    @property
    def end_of_text(self) -> int | None:
        """The id that ends a document or an answer; None in an encoder's vocabulary."""
        return None if self.specials else self._named("eos", None)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the file, whatever its formatting, and of the roles of its special pieces."""
        roles = {"specials": self.specials, "opening": self.opening, "ends": (self.beginning, self.end_of_text)}
        split = self._library.encode_special_tokens
        return sha256_json({"file": hashlib.sha256(self._document.encode()).hexdigest(), **roles, "split": split})

    def _id(self, named: Any) -> int:
        """The id of a token that settings name."""
        return self.vocabulary[named["content"] if isinstance(named, dict) else named]

    def _named(self, role: str, other: Any) -> Any:
        """The id of the piece in a role, by the settings or a usual name, or ``other``."""
        if (named := self._settings.get(f"{role}_token")) is not None:
            return self._id(named)
        return next((self.vocabulary[name] for name in _USUAL.get(role, ()) if name in self.vocabulary), other)

    def _built(self, n_texts: int) -> _Built:
        """What the post-processor puts around one text, or around and between two."""
        probes = ("a", *self._pieces)
        text = next(text for probe in probes if (text := self._library.encode(probe, add_special_tokens=False)).ids)
        built = self._library.post_process(text, *[text] * (n_texts - 1))
        added, n_ids = built.special_tokens_mask, len(text.ids)
        first = added.index(0)
        last = len(added) - added[::-1].index(0)
        before, between, behind = (
            tuple(built.ids[begin:end])
            for begin, end in ((0, first), (first + n_ids, last - n_ids), (last, len(added)))
        )
        return _Built(before, between, behind, built.type_ids[last - 1])

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
        """Each id of a text, its first character, and the one behind its last, without the white space around it."""
        encoding = self._library.encode(encodable(text), add_special_tokens=False)
        places = []
        for index, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            shown = text[start:end].strip()
            start += text[start:end].find(shown)
            places.append((index, start, start + len(shown)))
        return places

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids by the file's decoder, special pieces by their names.

        :raises InputError: an id outside the vocabulary.
        """
        text: str = self._library.decode(list(self._known(ids)), skip_special_tokens=False)
        return text

    def following(self, last: int) -> Callable[[int], str]:
        """What each further id adds to a text; a character comes with the last of its bytes."""
        before, pending = [last], list[int]()

        def add(index: int) -> str:
            pending.append(index)
            text = self.decode([*before, *pending])[len(self.decode(before)) :]
            if text.endswith("\ufffd") and len(pending) < 4:  # bytes of a character, of which more may come
                return ""
            before[:] = pending
            pending.clear()
            return text

        return add


def _object(folder: TokenizerFolder, name: str) -> dict[str, Any]:
    """The JSON object in a file of a folder; an empty one without the file."""
    url = folder.at(name)
    return parse_object(read_text(url), url, "an object of settings") if folder.has(name) else {}


def _read(document: str, name: str) -> Any:
    """:raises InputError: the library cannot read a file."""
    try:
        return tokenizers.Tokenizer.from_str(document)
    except Exception as error:
        said = f"tokenizers {tokenizers.__version__} cannot read it ({_said(error)})"
        raise InputError(f"{name}: {said}, expected a file of that library") from None


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _named_tokens(settings: Mapping[str, Any]) -> Iterator[tuple[int | None, AddedToken]]:
    """The tokens that settings name, in the order in which transformers adds those that a file lacks, and their ids."""
    listed = settings.get("added_tokens_decoder") or {}
    for index in sorted(listed, key=int):
        yield int(index), _added_token(listed[index])
    for name in _NAMED:
        if settings.get(name) is not None:
            yield None, _added_token(settings[name])
    for name in _LISTS:
        tokens = settings.get(name) or ()
        for token in tokens.values() if isinstance(tokens, dict) else tokens:
            yield None, _added_token(token)


def _added_token(said: Any) -> AddedToken:
    if isinstance(said, str):
        return AddedToken(said, special=True, normalized=False)
    return AddedToken(**{"special": True, **{key: value for key, value in said.items() if key != "__type"}})


def _components(part: Any) -> Iterator[Mapping[str, Any]]:
    """A normalizer, pre-tokenizer or decoder, and those that it is made of."""
    if isinstance(part, dict):
        yield part
        for inner in part.values():
            yield from (each for item in (inner if isinstance(inner, list) else ()) for each in _components(item))


def _check_agreement(
    document: Mapping[str, Any], settings: Mapping[str, Any], model: Mapping[str, Any], folder: TokenizerFolder
) -> None:
    """:raises InputError: settings by which transformers reads texts otherwise than ``tokenizer.json`` says."""
    named = settings.get("tokenizer_class") or model.get("tokenizer_class")
    has_defaults = named not in _GENERIC if named else model.get("model_type") in _WITH_DEFAULTS
    for part in (*_components(document.get("normalizer")), *_components(document.get("pre_tokenizer"))):
        for setting, (field, default) in _OVERRIDES.get(str(part.get("type")), {}).items():
            found = part.get(field)
            said = settings.get(setting, default if has_defaults else found)
            if setting == "strip_accents":  # where nothing is said it goes with the case
                found, said = (part.get("lowercase") if each is None else each for each in (found, said))
            if said != found:
                where = f"{folder.at(SETTINGS_FILE)}: {setting} = {said!r:.60}"
                raise InputError(f"{where}, expected {found!r} as in {LIBRARY_FILE}, {part['type']}.{field}")


def _kind(document: Mapping[str, Any], pieces: Iterable[str]) -> str:
    """The kind whose marks of words the pieces have."""
    types = {part.get("type") for name in ("pre_tokenizer", "decoder") for part in _components(document.get(name))}
    if "ByteLevel" in types:
        return "byte-level"
    if document["model"].get("end_of_word_suffix"):
        return "word"
    return "SentencePiece" if any(piece[0:1] == "▁" and piece != "▁" for piece in pieces) else "WordPiece"
