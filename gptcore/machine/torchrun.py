"""torchrun, tied to the process that started it.

    python -m gptcore.machine.torchrun --standalone --nproc-per-node 2 -m gptcore.training.pretrain JOB.json

The command line and what it does are torch.distributed.run's own. Two things are added, which it has no options for.
When the caller is killed outright this process goes too, and the kernel then tells its workers
(`process.die_with_parent`), which write a checkpoint and leave. A signal to the process group would not reach them:
torchrun makes every worker the leader of a session. And workers that are started again meet in a store of their own: in
that of the former ones, where torch would let them meet, they find these ones' addresses (pytorch/pytorch#135712).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from torch.distributed import run

from gptcore.machine import process


def main(arguments: Sequence[str]) -> None:
    """Run torchrun with ``arguments``; whatever went wrong, its exit code is 1 (`process.OUTCOME_VARIABLE`)."""
    process.die_with_parent(signal.SIGKILL)  # not SIGTERM: it would wait for its workers, and nobody for it
    os.environ[process.PARENT_VARIABLE] = str(os.getpid())  # inherited by the workers
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    run.main(list(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
