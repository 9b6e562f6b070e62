"""What a word looks like, as numbers: capitals, digits and marks, how it begins and ends, and the word itself.

Names are told by these where pieces of a vocabulary are not: by capitals above all, of which an uncased vocabulary says
nothing ("Design Challenges and Misconceptions in Named Entity Recognition", Ratinov and Roth 2009, section 3: the
features of most systems of CoNLL-2003). Each is hashed to a row of one table of embeddings, as in "Feature Hashing for
Large Scale Multitask Learning" (Weinberger et al. 2009), so that no list of words has to be kept.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

N_ROWS = 1 << 15
"""Rows of the table; 0 stands for no word."""
_LONGEST_AFFIX = 4
N_FEATURES = 3 + 2 * _LONGEST_AFFIX
"""Numbers of a word."""
_RUNS = re.compile(r"(.)\1{2,}")


@lru_cache(1 << 17)
def word_features(word: str) -> tuple[int, ...]:
    """:data:`N_FEATURES` numbers from 1 to :data:`N_ROWS` - 1: the same of the same word on any machine."""
    shape = "".join("X" if c.isupper() else "x" if c.islower() else "0" if c.isdigit() else c for c in word)
    shape = _RUNS.sub(r"\1\1", shape)  # of three like ones and more, two tell
    affixes = [f"{n}{part}" for n in range(1, _LONGEST_AFFIX + 1) for part in (f"< {word[:n]}", f"> {word[-n:]}")]
    texts = (f"word {word}", f"lower {word.lower()}", f"shape {shape}", *affixes)
    return tuple(1 + zlib.crc32(text.encode("utf-8", "surrogatepass")) % (N_ROWS - 1) for text in texts)
