"""EleutherAI's lm-evaluation-harness on our models (pip install gptmill[lm-eval]): its tasks, its prompts, its numbers.

import lm_eval
from gptcore.evaluation.harness import HarnessModel

model = HarnessModel("FOLDER/model", "FOLDER of its tokenizer")
lm_eval.simple_evaluate(model=model, tasks=["lambada_openai"], num_fewshot=0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval.api.model import LM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from gptcore.base.errors import InputError
from gptcore.evaluation.generate import generate_ids
from gptcore.evaluation.likelihood import NetworkLikelihood
from gptcore.machine.device import pick_device
from gptcore.models.network import load_language_model
from gptcore.text.tokenizer import Tokenizer

_AT_ONCE = 16  # texts that are written together
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens")  # as the task files call it
_MAX_TOKENS = 256  # where a task does not say
_SAMPLING = ("temperature", "top_k", "top_p")


class HarnessModel(LM):  # type: ignore[misc]  # the harness has no types
    """A language model of any family, as the harness asks for one.

    :param model: a folder that :func:`gptcore.models.network.load_language_model` opens.
    :param tokenizer: that of its tokenizer. A text without a context stands behind an end of text, or for GPT-1, which
        has none, behind a full stop.
    :raises InputError: no such model or tokenizer, or two that do not go together.
    """

    def __init__(self, model: str | Path, tokenizer: str | Path) -> None:
        super().__init__()
        self._tokenizer = Tokenizer.load(tokenizer)
        self._model = load_language_model(str(model)).to(pick_device(0)).eval()
        self._tokenizer.require_rows(self._model.config.n_vocab, str(model))
        self._likelihood = NetworkLikelihood(self._model)
        begin = self._tokenizer.beginning
        self._start = self._tokenizer.encode(".") if begin is None else [begin]

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """(sum of log P in nats, whether greedy decoding gives it) of each request's continuation of its context."""
        pairs = [self._pair(*request.args) for request in requests]
        n_ctx = self._model.config.n_ctx
        for (_, continuation), request in zip(pairs, requests, strict=True):
            if len(continuation) > n_ctx:  # what is cut off would make the rest likelier
                raise InputError(
                    f"{request.args[1]!r:.60}: {len(continuation)} tokens, expected n_ctx = {n_ctx} or fewer"
                )
        sums, greedy = self._likelihood.greedy_continuations(pairs)
        return list(zip(sums.tolist(), greedy.tolist(), strict=True))

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """Sum of log P of whole texts; beyond n_ctx in the harness' own windows, each of which scores new ids only."""
        pairs, owners = [], []
        for owner, request in enumerate(requests):
            ids = self._tokenizer.encode(request.args[0])
            windows = get_rolling_token_windows(ids, self._start[-1], self._model.config.n_ctx, context_len=1)
            own = list(map(make_disjoint_window, windows))
            pairs += own
            owners += [owner] * len(own)
        sums, _ = self._likelihood.continuations(pairs)
        totals: list[float] = np.bincount(np.asarray(owners, dtype=np.int64), sums, minlength=len(requests)).tolist()
        return totals

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """What the model writes on each context, up to the first of its stops."""
        answers = [""] * len(requests)
        ways: dict[str, list[int]] = {}
        for row, request in enumerate(requests):  # those that are drawn alike share their passes
            ways.setdefault(repr(sorted(request.args[1].items())), []).append(row)
        for rows in ways.values():
            settings = requests[rows[0]].args[1]
            for first in range(0, len(rows), _AT_ONCE):
                some = rows[first : first + _AT_ONCE]
                texts = self._written([requests[row].args[0] for row in some], settings, seed=first)
                for row, text in zip(some, texts, strict=True):
                    answers[row] = text
        return answers

    def _written(self, contexts: Sequence[str], settings: Mapping[str, Any], seed: int) -> list[str]:
        """What the model writes on each context by the harness' settings, at most half of n_ctx.

        Decoding is greedy unless they say ``do_sample``; it ends where every text has one of its stops.
        """
        n_ctx = self._model.config.n_ctx
        until = settings.get("until", [])
        stops = [until] if isinstance(until, str) else list(until)
        asked = next((settings[name] for name in _LENGTHS if settings.get(name)), _MAX_TOKENS)
        most = min(int(asked), n_ctx // 2)
        sampling: dict[str, Any] = {"temperature": 0.0}
        if settings.get("do_sample"):
            sampling = {name: settings[name] for name in _SAMPLING if name in settings}
        begun = [[*self._tokenizer.opening, *self._tokenizer.encode(text)] for text in contexts]
        ids = [(context or self._start)[-(n_ctx - most) :] for context in begun]
        end = self._tokenizer.end_of_text
        if end is None:  # a vocabulary of words writes lower case, blanks around marks and one line break at a time
            stops += [self._tokenizer.decode(self._tokenizer.encode(stop)) or "\n" for stop in stops]
        texts = generate_ids(
            self._model,
            ids,
            n_vocab=self._tokenizer.n_vocab,
            max_tokens=most,
            stop=() if end is None else (end,),
            ended=(lambda written: _before(text := self._tokenizer.decode(written), stops) != text) if stops else None,
            seed=seed,
            **sampling,
        )
        return [_before(self._tokenizer.decode(text), stops) for text in texts]

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Ids of a context and of its continuation: those of the whole text, cut where the context ends.

        White space between the two belongs to the continuation. Where a piece reaches over the border, each of the two
        is encoded by itself.
        """
        bare = context.rstrip()
        before, whole = self._tokenizer.encode(bare), self._tokenizer.encode(f"{context}{continuation}")
        if not before:
            return self._start, whole
        begun = [*self._tokenizer.opening, *before]
        if whole[: len(before)] == before and len(whole) > len(before):
            return begun, whole[len(before) :]
        return begun, self._tokenizer.encode(f"{context[len(bare) :]}{continuation}")


def _before(text: str, stops: Sequence[str]) -> str:
    """A text up to the first of some stops, of which an empty one is none."""
    return text[: min((text.find(stop) for stop in stops if stop and stop in text), default=len(text))]
