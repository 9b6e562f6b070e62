"""The flow that a schedule runs at night: backup, retention, garbage, verification, each as its command does it."""

from __future__ import annotations

from prefect import flow

from flows.forms.parameters import UpkeepParameters
from flows.servers import signals
from flows.upkeep.backup import backup
from flows.upkeep.garbage import gc
from flows.upkeep.retention import forget
from flows.upkeep.verify import verify

_YOUNG_HOURS = 24.0


@flow(name="upkeep", flow_run_name="upkeep", persist_result=False, log_prints=True)
def upkeep(parameters: UpkeepParameters) -> None:
    """Make a backup, delete what is over, and read the store, as far as the form says; its log is what they print."""
    signals.listen()
    if parameters.backup_to:
        backup(parameters.backup_to, parameters.store, "", parameters.keep)
    if parameters.artifacts:
        gc(parameters.store, True, _YOUNG_HOURS, False, parameters.history)
    else:
        print("\n".join(forget(parameters.history)) or "nothing is over for so long")
    if parameters.verify:
        verify(parameters.store, repair=False)
