"""KagNET on a user's own questions, with the paths of the graph that spoke for each choice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from gptcore.evaluation.predict import TaskModel
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_rows import read_own_rows
from gptcore.papers.graphs.config import GroundingConfig, KagNETConfig
from gptcore.papers.graphs.graph import KnowledgeGraph, path_in_words
from gptcore.papers.graphs.grounded import Concepts, Ways, ground
from gptcore.papers.graphs.kagnet import KagNET, Questions, explained


class Reasoner:
    """A trained KagNET with what it was trained over.

    :param folder: of a `kagnet` artifact.
    :param reader: the fine-tuned model that reads the texts.
    :param graph: the folder of the graph.
    :param vectors: the folder of its vectors.
    """

    def __init__(
        self,
        folder: Path,
        reader: TaskModel,
        graph: Path,
        vectors: Path,
        config: KagNETConfig,
        grounding: GroundingConfig,
    ) -> None:
        self._reader, self._grounding = reader, grounding
        self._graph = KnowledgeGraph.load(graph)
        learnt = load_file(str(vectors / "vectors" / "model.safetensors"))
        weights = load_file(str(folder / "kagnet" / "model.safetensors"))
        n_text = weights["pair_attention.weight"].shape[1]
        self._network = KagNET(learnt["entities"], learnt["relations"], n_text, config)
        self._network.load_state_dict(weights)
        self._network.eval()
        self._concepts = Concepts(self._graph)
        entities, relations = (learnt[name].numpy() for name in ("entities", "relations"))
        self._ways = Ways(self._graph, entities, relations, grounding.most_neighbours)

    def answers(self, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        """Answer questions one by one: what a fine-tuned model says of a row, and "why", each choice's paths in words.

        :param lines: JSON objects in UTF-8; their fields: :mod:`gptcore.nlu.own_rows`.
        :raises InputError: a broken row, once those before it are answered; names line and field.
        """
        for number, example in enumerate(read_own_rows(self._reader.spec, lines), start=1):
            texts, scores = self._reader.summaries([example])
            grounded, _ = ground([example], self._concepts, self._ways, self._grounding)
            questions = Questions([example], texts, scores, grounded)
            with torch.inference_mode():
                logits, attention = self._network.attended(questions.batch(np.array([0])))
            (told,) = explained(questions, np.array([0]), logits[None].numpy(), attention)
            why = {
                choice: [{"path": self._in_words(path), "weight": round(path["weight"], 3)} for path in each["paths"]]
                for choice, each in zip(example.choices, told["choices"], strict=True)
            }
            yield {
                "line": number,
                **form_of(self._reader.spec).described(self._reader.spec, logits.numpy()),
                "why": why,
            }

    def _in_words(self, path: dict[str, Any]) -> str:
        names = [self._graph.called(entity) for entity in path["entities"]]
        return path_in_words(names, [self._graph.spoken(relation) for relation in path["relations"]])
