"""EleutherAI's lm-evaluation-harness on our models (pip install gptmill[lm-eval]): its tasks, its prompts, its numbers.

import lm_eval
from gptcore.evaluation.harness import HarnessModel

model = HarnessModel("FOLDER/model", "FOLDER of its tokenizer")
lm_eval.simple_evaluate(model=model, tasks=["lambada_openai"], num_fewshot=0)

An encoder answers with the pseudo-log-likelihood of a continuation behind its context, and writes nothing.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import lm_eval
import numpy as np
import torch
from lm_eval.api.model import LM
from lm_eval.defaults import DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.types import Progress, quiet
from gptcore.evaluation.generate import generate_ids
from gptcore.evaluation.likelihood import NetworkLikelihood, PseudoLikelihood
from gptcore.families import FAMILIES
from gptcore.machine.device import pick_device
from gptcore.models.network import load_model, next_token_network
from gptcore.text.tokenizer import Tokenizer

_AT_ONCE = 16  # texts that are written together
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens")  # as the task files call it
_MAX_TOKENS = 256  # where a task does not say
_SAMPLING = ("temperature", "top_k", "top_p")


class HarnessModel(LM):  # type: ignore[misc]  # the harness has no types
    """A language model of any family, as the harness asks for one.

    :param model: a folder that :func:`gptcore.models.network.load_model` opens.
    :param tokenizer: that of its tokenizer, or the tokenizer itself. A text without a context stands behind an end of
        text, or for GPT-1, which has none, behind a full stop; an encoder's behind [CLS].
    :raises InputError: no such model or tokenizer, or two that do not go together.
    """

    def __init__(self, model: str | Path, tokenizer: str | Path | Tokenizer) -> None:
        super().__init__()
        self.progress: Progress = quiet
        """Called with (sequences scored, in all) of what the harness asks for at once."""
        self._tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.load(tokenizer)
        self._where, network = str(model), load_model(str(model))
        self._family = FAMILIES[network.config.family]
        self._likelihood: NetworkLikelihood | PseudoLikelihood
        if self._family.generates:
            self._model = next_token_network(network, self._where).to(pick_device(0)).eval()
            self._likelihood = NetworkLikelihood(self._model)
            begin = self._tokenizer.beginning
            self._start = self._tokenizer.encode(".") if begin is None else [begin]
        else:
            self._likelihood = self._family.part("likelihood")(self._where, self._tokenizer.specials)
            self._start = []
        self._tokenizer.require_rows(self._likelihood.n_vocab, self._where)

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """(sum of log P in nats, whether greedy decoding gives it) of each request's continuation of its context."""
        pairs = [self._pair(*request.args) for request in requests]
        longest = self._likelihood.longest
        for (_, continuation), request in zip(pairs, requests, strict=True):
            if len(continuation) > longest:  # what is cut off would make the rest likelier
                found = f"{request.args[1]!r:.60}: {len(continuation)} tokens"
                raise InputError(f"{found}, expected {longest} or fewer, for which the model has room")
        sums, greedy = self._likelihood.greedy_continuations(pairs, self.progress)
        return list(zip(sums.tolist(), greedy.tolist(), strict=True))

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """Sum of log P of whole texts; beyond n_ctx in the harness' own windows, each of which scores new ids only.

        Of an encoder the sum over windows that lie end to end.
        """
        texts = [self._tokenizer.encode(request.args[0]) for request in requests]
        if isinstance(self._likelihood, PseudoLikelihood):
            return list(map(float, self._likelihood.log_probabilities([[0, *ids] for ids in texts], self.progress)))
        pairs, owners = [], []
        for owner, ids in enumerate(texts):
            windows = get_rolling_token_windows(ids, self._start[-1], self._model.config.n_ctx, context_len=1)
            own = list(map(make_disjoint_window, windows))
            pairs += own
            owners += [owner] * len(own)
        sums, _ = self._likelihood.continuations(pairs, self.progress)
        totals: list[float] = np.bincount(np.asarray(owners, dtype=np.int64), sums, minlength=len(requests)).tolist()
        return totals

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """What the model writes on each context, up to the first of its stops.

        :raises InputError: an encoder, which writes nothing.
        """
        if not self._family.generates:
            found = f"{self._where}: found {self._family.title}, an encoder; the task has its answers written"
            raise InputError(f"{found}, expected a model that predicts the next token, or a task of given answers")
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
                self.progress(first + len(some), len(rows))
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


def harness_tasks(names: Sequence[str], include: str, num_fewshot: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The harness' tasks and groups of these names, each by its name; a group's tasks are among the tasks.

    :param include: a folder with task files of the user's own; empty: none.
    :param num_fewshot: examples before each question; None: as the task's file says. A task of none stays so.
    :raises InputError: an unknown name, a broken file, or rows that cannot be had.
    """
    own = TaskManager(include_path=include, include_defaults=False) if include else None
    # To read the harness' own thousands of files takes half a minute: tasks of the user's alone need not wait for it.
    manager = own if own and {*names} <= {*own.all_subtasks} else TaskManager(include_path=include or None)
    if unknown := [name for name in names if name not in manager.all_tasks]:
        close = ", ".join(get_close_matches(unknown[0], manager.all_tasks)) or "none is like it"
        raise InputError(f"--harness: found {unknown[0]!r}, expected a task or a group of the harness ({close})")
    try:
        loaded = manager.load(list(names))
    except (OSError, ValueError, KeyError, TypeError) as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"--harness: found {told}; expected files and rows of {', '.join(names)}") from error
    for task in loaded["tasks"].values():
        default = task.get_config("num_fewshot")
        if default is None or (num_fewshot is not None and default != 0):
            task.set_config(key="num_fewshot", value=num_fewshot or 0)
        task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
    return loaded["tasks"], loaded["groups"]


def harness_fingerprint(task: Any) -> str:
    """SHA-256 of what a task asks and how it counts: its settings, its functions' source, the rows asked and shown."""
    settings = task.config.to_dict(keep_callable=True)
    for place in ("dataset_path", "dataset_kwargs", "metadata"):  # the same rows may lie elsewhere
        settings.pop(place, None)
    shown = list(task.fewshot_docs()) if settings["num_fewshot"] else []
    return sha256_json(json.loads(json.dumps([task.VERSION, settings, list(task.eval_docs), shown], default=_told)))


def _told(value: Any) -> Any:
    """What JSON has no word for: a function's source, without its address in memory."""
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    return inspect.getsource(value) if inspect.isroutine(value) and not inspect.isbuiltin(value) else str(value)


def harness_scores(model: HarnessModel, task: Any, limit: int | None) -> dict[str, Any]:
    """What the harness finds of a model on one task, with its own seeds and errors, under the harness' own names.

    :param limit: so many of the task's rows, its first ones; None: all.
    :raises InputError: what the task asks is nothing for the model.
    """
    random.seed(DEFAULT_RANDOM_SEED)
    np.random.seed(DEFAULT_OTHER_SEED)
    torch.manual_seed(DEFAULT_OTHER_SEED)
    name = task.task_name
    found = lm_eval.evaluate(model, {"tasks": {name: task}, "groups": {}}, limit=limit, log_samples=False)
    return {part: found[part][name] for part in ("results", "versions", "n-shot", "higher_is_better", "n-samples")}
