"""How an update's sequences are shared out to processes and, within each, to micro-batches."""

from __future__ import annotations

import math

from gptcore.base.errors import InputError
from gptcore.machine.distributed import World


class MicroBatches:
    """The shares of a process.

    :ivar parts: the sequences of each of its micro-batches, as slices of the update's.
    :ivar idle: how many more, of weight 0, it has to run: sharded weights are put together by all processes at once,
        so all run equally often.
    """

    def __init__(self, batch_size: int, micro_batch_size: int | None, world: World) -> None:
        """:raises InputError: fewer sequences an update than processes."""
        if batch_size < world.size:
            raise InputError(f"batch_size = {batch_size} sequences an update is less than the {world.size} processes")
        share = world.share(batch_size)
        largest = math.ceil(batch_size / world.size)  # process's share
        size = micro_batch_size or largest
        self.parts = [slice(at, min(at + size, share.stop)) for at in range(share.start, share.stop, size)]
        self.idle = math.ceil(largest / size) - len(self.parts) if world.sharded else 0
