"""What a held-out text costs a language model in bits a byte: the one loss that compares across vocabularies."""

from __future__ import annotations

import math


def bits_per_byte(loss: float, scored: float, tokens: int, n_vocab: int, n_bytes: int) -> float:
    """The bits in which model and vocabulary encode a text, for each of the text's bytes.

    A loss per token is the smaller the shorter the tokens are; the bytes of a text are the same whatever cuts it. The
    first token of each document has nothing before it and is in no loss: it costs log2 of the vocabulary's size, or a
    vocabulary with longer tokens would have more of the text for nothing.

    :param loss: nats a token, the mean over the scored ones.
    :param scored: tokens that the loss is of.
    :param tokens: of the whole text, ``scored`` or more.
    :param n_bytes: of the whole text in UTF-8: as it was given, or as its tokens spell it.
    """
    nats = loss * scored + (tokens - scored) * math.log(n_vocab)
    return nats / math.log(2) / n_bytes
