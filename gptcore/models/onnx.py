"""A fine-tuned classifier as an ONNX file, which onnxruntime runs without torch; and that file with int8 weights.

B batch, C sequences an example (choices or orders), T positions, K outputs.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from gptcore.base.errors import InputError
from gptcore.models.classifier import ClassificationModel, Classifier, mean_state

INPUTS = ("tokens", "clf_position")
"""What a decoder's file takes: ids int64 [B, C, T], right-padded, and int64 [B, C], the index of each sequence's
classify. An encoder's, which is told by its first state, takes the marks of its inputs in the latter's place."""
OUTPUT = "logits"
"""What it gives: float32 [B, K], or [B, C] for choices."""
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_LARGEST_FILE = 1 << 31  # bytes that one protocol buffer holds


def require_onnx(where: str = "--format onnx") -> None:
    """Refuse to go on without the packages of the extra `onnx`.

    :param where: what asks for them, which the message begins with.
    :raises InputError: one is not.
    """
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise InputError(f"{where}: found no package {missing[0]}, expected pip install 'gptmill[onnx]'")


def export_onnx(model: Classifier, path: Path) -> None:
    """Write a classifier as one ONNX file, for batches of any size and sequences of up to n_ctx tokens.

    :param model: in eval mode, on the CPU.
    :raises InputError: its weights are more than one file holds.
    """
    n_bytes = sum(weights.numel() * weights.element_size() for weights in model.state_dict().values())
    if n_bytes >= _LARGEST_FILE:
        raise InputError(f"--format onnx: found weights of {n_bytes:,} bytes, expected less than {_LARGEST_FILE:,}")
    tokens = torch.zeros(2, 2, 5, dtype=torch.long)  # of no meaning but their shape
    rows, sequences = torch.export.Dim("rows"), torch.export.Dim("sequences")
    length = torch.export.Dim("length", max=model.network.config.n_ctx)
    a_token, a_sequence = {0: rows, 1: sequences, 2: length}, {0: rows, 1: sequences}
    graph: nn.Module
    names: tuple[str, ...]
    given: tuple[Tensor, ...]
    shapes: tuple[dict[int, torch.export.Dim], ...]
    if isinstance(model, ClassificationModel):
        graph, names, shapes = _Graph(model), INPUTS, (a_token, a_sequence)
        given = tokens, torch.full((2, 2), 4)
    else:
        graph, names, shapes = _MarkedGraph(model), ("tokens", "segments", "mask"), (a_token, a_token, a_token)
        given = tokens, tokens.clone(), tokens == 0  # one tensor given twice would be one input
    with _quiet():
        torch.onnx.export(
            graph.eval(),
            given,
            str(path),
            input_names=list(names),
            output_names=[OUTPUT],
            dynamic_shapes=shapes,
            external_data=False,
            verbose=False,
        )


def quantise_onnx(path: Path, out: Path) -> None:
    """Write an ONNX file again with int8 weights, a scale for each column of a matrix; sums stay in float32."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(path, out, weight_type=QuantType.QInt8, per_channel=True)


class OnnxClassifier(nn.Module):
    """An ONNX file in the place of the :class:`Classifier` that it was made from, on the CPU.

    :param threads: of a product; 0: one a core.
    """

    def __init__(self, path: Path, threads: int = 0) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def forward(self, tokens: Tensor, clf_position: Tensor, **marks: Tensor) -> tuple[Tensor, None]:
        """Ids [B, C, T], classify positions [B, C] and marks [B, C, T] -> task logits [B, K], or [B, C] for choices."""
        given = {"tokens": tokens, "clf_position": clf_position, **marks}
        wanted = {put.name: given[put.name].numpy() for put in self._session.get_inputs()}
        (logits,) = self._session.run([OUTPUT], wanted)
        return torch.from_numpy(logits), None


class _Graph(nn.Module):
    """What :class:`ClassificationModel` computes in eval mode, without the short cuts that depend on the ids."""

    def __init__(self, model: ClassificationModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, clf_position: Tensor) -> Tensor:
        gpt = self.model.gpt
        B, C, T = tokens.shape
        hidden = gpt.states(tokens.reshape(B * C, T), gpt.table())  # (B*C, T, D)
        ends = clf_position.reshape(B * C, 1, 1).expand(-1, -1, hidden.shape[-1])
        summary = hidden.gather(1, ends).reshape(B, C, -1)  # (B, C, D)
        if self.model.pooling:
            summary = summary + mean_state(hidden.reshape(B, C, T, -1), clf_position)
        return self.model.task_logits(summary, tokens, clf_position)


class _MarkedGraph(nn.Module):
    """A classifier whose places are told by marks, and which computes the same for all ids."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens, tokens[:, :, 0], segments=segments, mask=mask)[0]
        return logits


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter's progress and its advice about opsets are for whoever writes exporters."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
