"""Where a stage says what it does: the log of its Prefect run, or a plain one."""

from __future__ import annotations

import logging

from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger


def logger() -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    """The run's logger inside a Prefect run, a plain one outside (units, other schedulers)."""
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("gptmill")
