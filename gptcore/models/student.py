"""A student's first weights: its teacher's embeddings, heads, and some of its layers (DistilBERT, section 3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from gptcore.models.network import Network


def start_from_teacher(student: Network, teacher: Network, layers: Sequence[int]) -> None:
    """Take over the teacher's weights, in place; what it does not have stays as it was drawn.

    :param student: of the teacher's kind and widths.
    :param layers: for each of the student's layers the teacher's, counted from 1.
    """
    pairs = [
        pair
        for mine, its in enumerate(layers)
        for pair in zip(student.layer_parts(mine), teacher.layer_parts(its - 1), strict=True)
    ]
    outside = dict(teacher.named_children())
    pairs += [
        (part, outside[name])
        for name, part in student.named_children()
        if name in outside and not isinstance(part, nn.ModuleList)
    ]
    with torch.no_grad():
        for mine, its in pairs:
            known = its.state_dict()
            for name, tensor in mine.state_dict().items():
                if name in known:
                    tensor.copy_(known[name][: len(tensor)])  # a student may have fewer positions
