"""GPT-BERT's network ("GPT or BERT: why not both?", Charpentier and Samuel 2024, section 3).

It is GPT-2's decoder, which reads a sequence word by word or as a whole, as it is told to.

Legend of the shape comments: B batch, T positions, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gptcore.models.context import Context
from gptcore.models.network import LanguageModel
from gptcore.models.transformer import GPT


class BothWays(GPT):
    """GPT-2's decoder with a row of its embedding, the first behind the vocabulary's, for hidden words.

    What differs from sequence to sequence is which positions each of them sees. Logits stay those of the next token,
    also where that one is hidden and the network reads on behind it.

    Alone (:meth:`forward`, :meth:`states`) it reads word by word; fine-tuned it sees each sequence whole.
    """

    @property
    def mask(self) -> int:
        """The id that stands in a hidden word's place."""
        return self.config.n_vocab

    def mixed_states(self, tokens: Tensor, table: Tensor, whole: Tensor, words: Tensor) -> Tensor:
        """States after the last block, of sequences read in either way: ids [B, T] -> [B, T, D].

        :param whole: [B] bool, which sequences are seen as a whole.
        :param words: [B, T] bool, False for padding, which no other position sees.
        """
        T = tokens.shape[1]
        before = torch.ones(T, T, dtype=torch.bool, device=tokens.device).tril_()
        seen = torch.where(whole[:, None, None, None], words[:, None, None, :], before)  # (B, 1, T, T)
        return self.through(self._embedded_in_order(tokens, table), Context(seen))

    def sequence_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        """States of whole sequences, [B, T, D], in which every position sees all others up to ``ends`` [B]."""
        words = torch.arange(tokens.shape[1], device=tokens.device) <= ends[:, None]  # (B, T)
        return self.through(self._embedded_in_order(tokens, table), Context(words[:, None, None, :]))

    def choices(self, tokens: Tensor, ends: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """States of the sequences one by one: a beginning sees what follows it, so that nothing can be shared."""
        return LanguageModel.choices(self, tokens, ends, table)

    def last_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        """States of the last tokens, [B, C, D], from whole passes: sequences that begin alike share nothing."""
        return LanguageModel.last_states(self, tokens, ends, table)
