"""What the terminal shows of a failed run."""

from __future__ import annotations

import logging

from flows import signals
from gptcore.errors import InputError


class _WithoutInputErrors(logging.Filter):
    """Drops Prefect's words on an InputError and on a signal: the command line prints its one line itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        if signals.asked_to_end():
            return False
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, InputError) and "InputError(" not in record.getMessage()


def quiet_input_errors() -> None:
    """Install the filter on the loggers of flow and task runs."""
    for name in ("prefect.flow_runs", "prefect.task_runs", "prefect.engine"):
        logging.getLogger(name).addFilter(_WithoutInputErrors())
