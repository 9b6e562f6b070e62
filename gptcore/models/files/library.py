"""The tokenizer of a model as transformers reads it from any folder: ``tokenizer.json``, of the library `tokenizers`.

It gives our ids, but GPT-1's, whose words transformers finds by itself, and puts the special tokens around one text or
two that a fine-tuned model was trained with.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Library

from gptcore.base.tables import read_table
from gptcore.config import NetworkConfig
from gptcore.text.tokenizer import BytePairTokenizer, Tokenizer
from gptcore.text.vocabulary import LIBRARY_FILE, PAPER_MARKS
from gptcore.text.wordpiece import WordPieceTokenizer

SPECIAL_NAMES = ("_start_", "_delimiter_", "_classify_")
"""What the rows that a task adds are called in the exported tokenizer (original code)."""
MASK = "<mask>"
"""What the row in the place of hidden words is called there (GPT-BERT)."""
ADDED_ROWS: dict[int, tuple[str, ...]] = {len(names): names for names in ((), (MASK,), PAPER_MARKS, SPECIAL_NAMES)}
"""How many rows a decoder has behind its vocabulary -> what they are called."""
_TABLES = read_table(__file__, "library.toml")


def added_token(name: str, rows: tuple[str, ...] = ()) -> dict[str, Any]:
    """How a special token is found in a text.

    White space beside the marks of a paper is part of its format (papers/abstracts/documents) and never encoded; before
    a hidden word it belongs to the word.

    :param rows: what the rows behind the vocabulary are called.
    """
    strips = rows == PAPER_MARKS
    found = {"lstrip": strips or name == MASK, "normalized": False, "rstrip": strips, "single_word": False}
    return {"content": name, **found, "special": True}


def write_library(tokenizer: Tokenizer, config: NetworkConfig, folder: Path, classifies: bool) -> dict[str, Any]:
    """Write ``tokenizer.json`` beside a tokenizer's files, or complete the one that is there.

    :param config: the network's, whose vocabulary may be larger; behind it stand :data:`ADDED_ROWS`.
    :param classifies: whether the name of a special token in a text is text like any other.
    :return: what the tokenizer's settings have to say beside it; SentencePiece is read as it is.
    """
    file, names, pieces = folder / LIBRARY_FILE, ADDED_ROWS[config.n_special], tokenizer.specials
    said: dict[str, Any] = {"model_input_names": ["input_ids", *["token_type_ids"] * bool(pieces), "attention_mask"]}
    if (file.is_file() and pieces) or not (file.is_file() or tokenizer.kind in _TABLES):
        return said
    said |= {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": classifies}
    by_id, around, added = list(tokenizer.vocabulary), names, names
    if pieces:
        roles = {role: by_id[getattr(pieces, role)] for role in ("pad", "unk", "cls", "sep", "mask")}
        around, added = (roles["cls"], roles["sep"], roles["sep"]), (*roles.values(),)
    else:
        added = names or (by_id[tokenizer.end_of_text or 0],)  # id 0 is GPT-1's for padding
        roles = {"pad": added[-1], **({"mask": MASK} if MASK in names else {})}
    library = Library.from_str(file.read_text("utf-8") if file.is_file() else json.dumps(_parts(tokenizer)))
    unused = range(library.get_vocab_size(), config.n_vocab if names else 0)
    library.add_special_tokens([f"[unused{index}]" for index in unused])
    library.add_special_tokens([AddedToken(**added_token(name, names)) for name in added])
    if len(around) == len(SPECIAL_NAMES):
        library.post_processor = processors.TemplateProcessing(
            single=[around[0], "$A", around[2]],
            pair=[around[0], "$A", around[1], "$B:1", f"{around[2]}:1"],
            special_tokens=[(name, library.token_to_id(name)) for name in {*around}],
        )
    library.save(str(file))
    return said | {f"{role}_token": name for role, name in roles.items()}


def _parts(tokenizer: Tokenizer) -> dict[str, Any]:
    """What a vocabulary's ``tokenizer.json`` holds where nothing is added to it."""
    parts = {"version": "1.0", "added_tokens": [], **_TABLES[tokenizer.kind]}
    parts["model"] = {**parts["model"], "vocab": tokenizer.vocabulary}
    if isinstance(tokenizer, BytePairTokenizer):
        parts["model"]["merges"] = tokenizer.merges
    if isinstance(tokenizer, WordPieceTokenizer):
        lower = {"lowercase": not tokenizer.cased, "strip_accents": not tokenizer.cased}
        parts["normalizer"] = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, **lower}
    return parts
