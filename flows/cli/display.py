"""What the terminal shows of a run: a line a finished stage, bars for what is under way, every warning.

The source is Python's logging alone (`tasks/tracking/logs.py`): this is a handler in the place of Prefect's console
handler. Everything, Prefect's own words included, goes to a file in the state folder. Lines go to standard error, so
that standard output has the result alone; without a terminal the bars are a plain line a minute.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from textwrap import shorten, wrap

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TaskProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from flows.servers import signals
from gptcore.base.errors import InputError, unwritable
from tasks.store.state import state_folder
from tasks.tracking.logs import PROGRESS, Made, Underway

_LOGS_KEPT = 20
_DETAILS = ("gptmill", "gptcore", "tasks", "flows")  # loggers whose INFO lines belong in the file
_LINE_EVERY = 55.0  # seconds of silence before a line of progress, where there is no terminal,
_LOOK_EVERY = 2.0  # and between two looks at how long it has been: no minute of work is without a line
_REST = 19  # columns beside a bar and what it is of: the share, and the time left
_WIDTH = 100  # columns of a terminal that a stage's line fills
_WORDS = 58  # of them what the stage made
_WARNING = 300  # characters of a warning that the terminal gets; the file has it whole


@contextmanager
def shown(command: str, verbose: bool = False, console: Console | None = None) -> Iterator[None]:
    """Show on the terminal what the flows inside do, and keep all of it in a file.

    :param command: names the file.
    :param verbose: leave the terminal to Prefect's own lines.
    """
    path = _log_file(command)
    console = console or Console(stderr=True, highlight=False)
    console.print(f"{'log':<11} {path}", style="dim", soft_wrap=True)
    file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(_Lines("%(asctime)s %(levelname)-7s %(run)s - %(message)s"))
    # A line that cannot be written, to a full disk or to a server that is away, is lost in silence: logging's own words
    # on it are a page a line. For good, as the last of them come while the process ends.
    logging.raiseExceptions = False
    with closing(file):
        if verbose:
            with _listening([file]), _without_input_errors():
                yield
            return
        display = Display(console)
        with _listening([file, display], live=display), _in_place_of_prefects([file, display]), closing(display):
            display.begin()
            yield


@contextmanager
def _listening(handlers: Sequence[logging.Handler], live: logging.Handler | None = None) -> Iterator[None]:
    """Hand every record to ``handlers``, our own details included, and progress to ``live`` alone."""
    root, progress = logging.getLogger(), logging.getLogger(PROGRESS)
    progress.propagate = False  # several records a second: for the bars, not for the file
    with ExitStack() as stack:
        for logger in map(logging.getLogger, _DETAILS):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.INFO)
        for logger, handler in [*((root, handler) for handler in handlers), *([(progress, live)] if live else [])]:
            stack.callback(logger.removeHandler, handler)
            logger.addHandler(handler)
        yield


@contextmanager
def _in_place_of_prefects(handlers: Sequence[logging.Handler]) -> Iterator[None]:
    """Take Prefect's console handler off, and the one that its services have for themselves."""
    root, services = logging.getLogger(), logging.getLogger("prefect._internal")
    console, own = _prefects_console(), services.handlers
    for handler in console:
        root.removeHandler(handler)
    services.handlers = list(handlers)
    try:
        yield
    finally:
        services.handlers = own
        for handler in console:
            handler.setLevel(logging.WARNING)  # what it still has to say, of servers that stop, is no result
            handler.addFilter(lambda _: not signals.asked_to_end())
            root.addHandler(handler)


@contextmanager
def _without_input_errors() -> Iterator[None]:
    """Drop Prefect's words on an InputError and on a signal: the command line prints its one line itself."""

    def other(record: logging.LogRecord) -> bool:
        if signals.asked_to_end():
            return False
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, InputError) and "InputError(" not in record.getMessage()

    with ExitStack() as stack:
        for handler in _prefects_console():
            stack.callback(handler.removeFilter, other)
            handler.addFilter(other)
        yield


def _prefects_console() -> list[logging.Handler]:
    if "prefect" not in sys.modules:
        return []
    from prefect.logging.handlers import PrefectConsoleHandler

    return [handler for handler in logging.getLogger().handlers if isinstance(handler, PrefectConsoleHandler)]


class Display(logging.Handler):
    """Draws records: stages' results as lines, progress as bars or, without a terminal, as a line a minute."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._stage: _Stage | None = None
        self._told: set[str] = set()
        self._bars: Progress | None = None
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._news: Underway | None = None  # the last of what is under way
        self._heard: dict[tuple[str, str], bool] = {}  # stage, item (none: all of them) -> whether it waits
        self._last_line = time.monotonic()
        self._failed: list[BaseException] = []
        self._over = threading.Event()
        if not console.is_terminal:
            threading.Thread(target=self._keep_telling, name="lines of progress", daemon=True).start()

    def begin(self) -> None:
        """Say that something happens where nobody says how far it is: servers, for one, take their time to start."""
        if self._console.is_terminal:
            self._bar(("", ""), f"{'':<11}", None, ())

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record; called with the handler's lock held, so from one thread at a time."""
        try:
            news = getattr(record, "news", None)
            if isinstance(news, Made):
                self._made(news, record.created)
            elif isinstance(news, Underway):
                self._enter(news.stage, record.created)
                if self._console.is_terminal:
                    description = f"  {news.item}" if news.item else f"{news.stage:<11}"
                    self._bar((news.stage, news.item), description, news.share, news.parts)
                else:
                    self._hear(news)
            elif record.levelno >= logging.WARNING:
                self._warning(record)
        except Exception:  # logging's own rule: a broken handler ends no work
            self.handleError(record)

    def close(self) -> None:
        """Print what was still being gathered, and free the terminal."""
        self._over.set()
        self.acquire()
        try:
            self._leave()
            if self._bars is not None:
                self._bars.stop()
                self._bars = None
        finally:
            self.release()
        super().close()

    # --- stages

    def _enter(self, stage: str, now: float) -> None:
        if self._stage is None or self._stage.name != stage:
            self._leave()
            self._stage = _Stage(stage, now)

    def _leave(self) -> None:
        """The line of the stage that is over, unless it only found again what a line has told of."""
        stage, self._stage, self._news = self._stage, None, None
        for task in self._tasks.values():
            if self._bars is not None:
                self._bars.remove_task(task)
        self._tasks.clear()
        if stage is None or not stage.made or all(made.cached and made.digest in self._told for made in stage.made):
            return
        self._told |= {made.digest for made in stage.made}
        self._print(stage.line(self._console.width if self._console.is_terminal else None))

    def _made(self, made: Made, now: float) -> None:
        self._enter(made.stage, now - (0.0 if made.cached else made.seconds))
        assert self._stage is not None
        self._stage.made.append(made)
        self._stage.end = now
        if (task := self._tasks.pop((made.stage, made.item), None)) is not None and self._bars is not None:
            self._bars.remove_task(task)
        if not made.item:
            self._leave()
            self.begin()

    # --- progress

    def _bar(self, key: tuple[str, str], description: str, share: float | None, parts: tuple[str, ...]) -> None:
        """Draw the bar of ``key`` anew; without a share it only moves."""
        if self._bars is None:
            bar = min(14, self._console.width // 10)
            most = max(self._console.width - bar - _REST, 1)
            self._bars = Progress(
                TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=most)),
                BarColumn(bar),
                TaskProgressColumn(),
                _PartsColumn(table_column=Column(ratio=1)),
                console=self._console,
                transient=True,
                refresh_per_second=2,  # the cores are for the training
                expand=True,
            )
            self._bars.start()
        if key not in self._tasks:
            self._tasks[key] = self._bars.add_task(description, total=None if share is None else 1.0, parts=parts)
        self._bars.update(self._tasks[key], completed=share or 0.0, parts=parts)

    def _hear(self, news: Underway) -> None:
        """Tell of it in a plain line, now or when it is time for one."""
        if news.item and (news.stage, "") in self._heard:
            return  # how far all of them are says more than how far one is
        key, self._news = (news.stage, news.item), news
        told = news.waits != self._heard.get(key, False)  # why nothing happens is said at once, and that it goes on
        self._heard[key] = news.waits
        self._line(at_once=told)

    def _line(self, at_once: bool = False) -> None:
        """A plain line on what is under way, where there has been none for a while."""
        if (news := self._news) and (at_once or time.monotonic() - self._last_line >= _LINE_EVERY):
            item = f"{news.item}: " if news.item else ""
            self._print(f"{news.stage:<11} {news.share:>4.0%}  {item}{news.words}")

    def _keep_telling(self) -> None:
        """Lines also of work that says nothing new for a while."""
        while not self._over.wait(_LOOK_EVERY):
            self.acquire()
            try:
                self._line()
            finally:
                self.release()

    # --- warnings

    def _warning(self, record: logging.LogRecord) -> None:
        """One line; the file has the traceback. A failure that passes through task and flows is told once."""
        if signals.asked_to_end():
            return  # nothing that fails from now on is news; the file has it
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, InputError) or any(error is told for told in self._failed):
            return  # the command line prints an InputError itself
        if error is not None and unwritable(error):
            return  # and this, which many may come to at once
        words = record.getMessage()
        if error is not None:
            self._failed.append(error)
            words = f"{_run_of(record)}: {type(error).__name__}: {error}"
        elif (
            words.startswith(("Finished in state", "Crash detected!", "Failed to write result"))
            or "InputError(" in words
        ):
            return  # Prefect's second word on the same failure
        words = f"{record.levelname.lower()}: {shorten(words.partition(chr(10))[0][:_WARNING], _WARNING)}"
        if self._console.is_terminal:
            words = "\n".join(wrap(words, self._console.width, break_long_words=False, break_on_hyphens=False))
        self._print(words, "red" if record.levelno >= logging.ERROR else "yellow")

    def _print(self, text: str, style: str = "") -> None:
        self._last_line = time.monotonic()
        self._console.print(Text(text, style), soft_wrap=True)


@dataclass(frozen=True)
class _Parts:
    """Words of which as many parts stand as have room, the first ones first; the first is never cut."""

    parts: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        n = len(self.parts)
        while n > 1 and len(", ".join(self.parts[:n])) > options.max_width:
            n -= 1
        yield Text(", ".join(self.parts[:n]))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(len(self.parts[0]) if self.parts else 0, len(", ".join(self.parts)))


class _PartsColumn(ProgressColumn):
    """What a bar's task has in its field ``parts``."""

    def render(self, task: Task) -> _Parts:
        return _Parts(task.fields["parts"])


@dataclass
class _Stage:
    """What one line tells: a stage, or all items of one that runs once a task."""

    name: str
    start: float
    made: list[Made] = field(default_factory=list)
    end: float = 0.0

    def line(self, width: int | None) -> str:
        """The stage, what it made and what that took; the digest where there is room.

        :param width: columns of the terminal, in which long words take lines of their own; None: there is none.
        """
        digest = f"   {self.made[0].digest}" if len(self.made) == 1 and (width or _WIDTH) >= _WIDTH else ""
        cost = f"  {self.cost:>12}"
        room = max(12, min(_WORDS, (width or _WIDTH) - 12 - len(cost) - len(digest)))
        first, *rest = (wrap(self.words, room, break_on_hyphens=False) if width else [self.words]) or [""]
        return "\n".join(
            [f"{self.name:<11} {first:<{room}}{cost}{digest}".rstrip(), *(f"{'':<12}{each}" for each in rest)]
        )

    @property
    def words(self) -> str:
        """``33 train + 3 held out``, or ``12 tasks: 5,400 rows``."""
        first = self.made[0]
        amounts = Counter[str]()
        for made in self.made:
            amounts.update(made.made if isinstance(made.made, Mapping) else {})
        texts = {made.made for made in self.made if isinstance(made.made, str)}
        what = next(iter(texts)) if len(texts) == 1 else ", ".join(f"{n:,} {unit}" for unit, n in amounts.items())
        if not first.item:
            return what
        items = {made.item for made in self.made}
        which = first.item if len(items) == 1 else f"{len(items)} {first.unit}s"
        return f"{which}: {what}" if what else which

    @property
    def cost(self) -> str:
        """``4.2 s``, ``in the store``, or both."""
        found = sum(made.cached for made in self.made)
        if found == len(self.made):
            return "in the store" if any(made.digest for made in self.made) else ""
        seconds = self.end - self.start if len(self.made) > 1 else self.made[0].seconds
        minutes, rest = divmod(round(seconds), 60)
        text = f"{seconds:.1f} s" if seconds < 100 else f"{minutes} min {rest} s"
        return f"{text}, {found} found" if found else text


class _Lines(logging.Formatter):
    """A record with the name of its Prefect run, where it has one."""

    def format(self, record: logging.LogRecord) -> str:
        record.run = _run_of(record)
        return super().format(record)


def _run_of(record: logging.LogRecord) -> str:
    return str(getattr(record, "task_run_name", None) or getattr(record, "flow_run_name", None) or record.name)


def _log_file(command: str) -> Path:
    """A new file for this run; the oldest beyond some number go."""
    folder = state_folder() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("*-????????-??????.log"), key=lambda path: path.stat().st_mtime)[: -_LOGS_KEPT + 1]:
        old.unlink(missing_ok=True)
    moment = datetime.now()
    while True:
        path = folder / f"{command}-{moment:%Y%m%d-%H%M%S}.log"
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:  # of a run that began in the same second
            moment += timedelta(seconds=1)
