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

from gptcore.errors import InputError
from gptcore.families import FAMILIES
from gptcore.models.classifier import Classifier
from gptcore.models.heads import ClassificationModel

INPUTS = ("tokens", "clf_position")
"""What the file takes: ids int64 [B, C, T], right-padded, and int64 [B, C], the index of each sequence's classify."""
OUTPUT = "logits"
"""What it gives: float32 [B, K], or [B, C] for choices."""
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_LARGEST_FILE = 1 << 31  # bytes that one protocol buffer holds


def require_onnx() -> None:
    """See that the packages of the extra `onnx` are installed.

    :raises InputError: one is not.
    """
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise InputError(f"--format onnx: found no package {missing[0]}, expected pip install 'gptmill[onnx]'")


def export_onnx(model: Classifier, path: Path) -> None:
    """Write a classifier as one ONNX file, for batches of any size and sequences of up to n_ctx tokens.

    :param model: in eval mode, on the CPU.
    :raises InputError: it is no decoder's, or its weights are more than one file holds.
    """
    if not isinstance(model, ClassificationModel):
        title = FAMILIES[model.network.config.family].title
        raise InputError(f"--format onnx: found a model of the kind {title}, expected a decoder's")
    n_bytes = sum(weights.numel() * weights.element_size() for weights in model.parameters())
    if n_bytes >= _LARGEST_FILE:
        raise InputError(f"--format onnx: found weights of {n_bytes:,} bytes, expected less than {_LARGEST_FILE:,}")
    tokens = torch.zeros(2, 2, 5, dtype=torch.long)  # of no meaning but their shape
    rows, sequences = torch.export.Dim("rows"), torch.export.Dim("sequences")
    length = torch.export.Dim("length", max=model.gpt.config.n_ctx)
    with _quiet():
        torch.onnx.export(
            _Graph(model).eval(),
            (tokens, torch.full((2, 2), 4)),
            str(path),
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_shapes={"tokens": {0: rows, 1: sequences, 2: length}, "clf_position": {0: rows, 1: sequences}},
            external_data=False,
            verbose=False,
        )


def quantise_onnx(path: Path, out: Path) -> None:
    """Write an ONNX file again with int8 weights, a scale for each column of a matrix; sums stay in float32."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(path, out, weight_type=QuantType.QInt8, per_channel=True)


class OnnxClassifier(nn.Module):
    """An ONNX file in the place of the :class:`ClassificationModel` that it was made from, on the CPU.

    :param threads: of a product; 0: one a core.
    """

    def __init__(self, path: Path, threads: int = 0) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def forward(self, tokens: Tensor, clf_position: Tensor) -> tuple[Tensor, None]:
        """See :meth:`ClassificationModel.forward`: [B, C, T], [B, C] -> logits [B, K] or [B, C]."""
        given = dict(zip(INPUTS, (tokens.numpy(), clf_position.numpy()), strict=True))
        (logits,) = self._session.run([OUTPUT], given)
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
        if self.model.form != "choices":
            summary = summary.sum(dim=1, keepdim=True)  # (B, 1, D)
        logits: Tensor = self.model.head(summary)
        return logits.flatten(1)


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
