"""A generated, synthetic world: books and all twelve datasets about it.

The books tell what the tasks ask: which words mean the same, what follows from what, who has what. So pre-training on
them helps, as on real text, and a whole pipeline can be tried honestly without any download. Numbers measured on it
are numbers on synthetic text.
"""

from __future__ import annotations

from gptcore.papers.storyworld.write import generate

__all__ = ["generate"]
