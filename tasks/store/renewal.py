"""Something said again and again for as long as something lasts, so that others see that it does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Self

log = logging.getLogger(__name__)


class Renewal:
    """Calls a function every so many seconds, first after that time, until its end.

    In a daemon thread of its own: a server that does not answer silences nothing but what is said to it. A forked child
    has none. A call that fails is a warning: what it tells of is worth more, and the next one may get through.
    """

    def __init__(self, beat: Callable[[], None], seconds: float, what: str) -> None:
        """
        :param what: what goes on, in words, for the log.
        """
        self._beat, self._seconds, self._what = beat, seconds, what
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"renewal of {what}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Say it no more; a call that is under way is waited for."""
        self._ended.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self._beat()
            except Exception as error:  # whatever the client library of an object store raises
                log.warning("%s: others get no sign that it goes on (%s: %s)", self._what, type(error).__name__, error)
