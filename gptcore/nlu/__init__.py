"""The twelve datasets: what they are (registry), how they are read, fed to the network, scored and compared."""

from __future__ import annotations

from gptcore.nlu.readers import Example, available, load_task
from gptcore.nlu.registry import COLUMNS, REGISTRY, TaskSpec, task_spec

__all__ = ["COLUMNS", "REGISTRY", "Example", "TaskSpec", "available", "load_task", "task_spec"]
