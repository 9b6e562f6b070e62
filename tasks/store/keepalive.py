"""Something said again and again while work goes on, whatever that work does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)
_SECONDS = 600.0  # a fraction of whatever `gc` may call young (`--older-than`, in hours)


@contextmanager
def keepalive(beat: Callable[[], None], what: str) -> Iterator[None]:
    """Call ``beat`` every ten minutes in a thread of its own until the ``with`` block ends, and never after that.

    A beat that fails is a warning: the work that it tells of is worth more, and the next one may get through.

    :param what: the work, in words, for the log.
    """
    ended = threading.Event()

    def beats() -> None:
        while not ended.wait(_SECONDS):
            try:
                beat()
            except Exception:  # whatever the client library of an object store raises
                log.warning("%s: could not tell other hosts that the work goes on", what, exc_info=True)

    thread = threading.Thread(target=beats, name=f"keepalive of {what}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
