"""A decoder that reads a sequence word by word or as a whole, as it is told to: GPT-BERT's network.

"GPT or BERT: why not both?" (Charpentier and Samuel 2024, section 3). The weights are those of GPT-2's decoder; what
differs from sequence to sequence is which positions each of them sees. Logits stay those of the next token, also where
that one is hidden and the network reads on behind it.

Legend of the shape comments: B batch, T positions, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gptcore.models.language_model import LanguageModel
from gptcore.models.transformer import GPT


class BothWays(GPT):
    """GPT-2's decoder with a row of its embedding, the first behind the vocabulary's, for hidden words.

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
        return self._seen(tokens, table, seen)

    def sequence_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        """See :meth:`LanguageModel.sequence_states`; every position sees all up to the end."""
        words = torch.arange(tokens.shape[1], device=tokens.device) <= ends[:, None]  # (B, T)
        return self._seen(tokens, table, words[:, None, None, :])

    def choices(self, tokens: Tensor, ends: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`LanguageModel.choices`; what begins alike goes on differently, so nothing is shared."""
        return LanguageModel.choices(self, tokens, ends, table)

    def last_states(self, tokens: Tensor, ends: Tensor, table: Tensor) -> Tensor:
        """See :meth:`LanguageModel.last_states`; nothing is shared, either."""
        return LanguageModel.last_states(self, tokens, ends, table)

    def _seen(self, tokens: Tensor, table: Tensor, seen: Tensor) -> Tensor:
        """:param seen: [B, 1, T or 1, T] bool, what each position, or every one, sees."""
        x = self._embedded_in_order(tokens, table)
        for block in self.blocks:
            x = block(x, seen)
        return self._normalised(x)
