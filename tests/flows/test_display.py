"""What a person sees of a run: a line a stage, progress, every warning once; and what only the file has."""

from __future__ import annotations

import io
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from flows.cli import display
from flows.cli.display import shown
from gptcore.base.errors import InputError
from tasks.stages.stage import JOB_OPTIONS
from tasks.tracking.logs import Made, Meter, Underway, logger, progress, rate

TALK = logging.getLogger("gptmill")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    return tmp_path


class Screen:
    """A console that remembers."""

    def __init__(self, terminal: bool = False, width: int = 100) -> None:
        self.file = io.StringIO()
        self.console = Console(file=self.file, width=width, height=30, force_terminal=terminal, color_system=None)

    @property
    def lines(self) -> list[str]:
        return self.file.getvalue().splitlines()[1:]  # the first names the log file

    @property
    def log(self) -> str:
        return Path(self.file.getvalue().splitlines()[0].split(maxsplit=1)[1]).read_text(encoding="utf-8")


@contextmanager
def watched(
    command: str = "pipeline", terminal: bool = False, verbose: bool = False, width: int = 100
) -> Iterator[Screen]:
    """What a person sees of a command meanwhile."""
    screen = Screen(terminal, width)
    with shown(command, verbose, screen.console):
        yield screen


def tell(
    stage: str,
    made: str | Mapping[str, int],
    item: str = "",
    digest: str = "3f2a91c04b7d",
    cached: bool = False,
    unit: str = "task",
) -> None:
    TALK.info("%s %s", stage, digest, extra={"news": Made(stage, made, 4.2, cached, digest, item, unit)})


def test_a_stage_is_a_line_with_what_it_made_and_what_that_took() -> None:
    with watched() as screen:
        tell("corpus", "36 documents -> 33 train + 3 held out, 2.1 M words")
        tell("tokenizer", "2,086 pieces", digest="bb833983e1a7", cached=True)
        assert [line.split("  ")[0] for line in screen.lines] == ["corpus", "tokenizer"]  # at once
    corpus, tokenizer = screen.lines
    assert corpus.split("   ")[0] == "corpus"
    assert "33 train + 3 held out, 2.1 M words" in corpus
    assert corpus.endswith("4.2 s   3f2a91c04b7d")
    assert tokenizer.endswith("in the store   bb833983e1a7")
    assert max(map(len, screen.lines)) <= 100


def test_a_stage_of_many_items_is_one_line_too() -> None:
    with watched() as screen:
        for number, task in enumerate(("rte", "sst2", "cola")):
            tell("baselines", "best constant, bag of words", task, f"b{number}")
        for number, task in enumerate(("rte", "sst2", "cola")):
            tell("datasets", {"rows": 1000}, task, f"d{number}", cached=number < 2)
        tell("shards", "0.7 M tokens", digest="5")
        for number, task in enumerate(("rte", "sst2", "cola")):
            tell("baselines", "best constant, bag of words", task, f"b{number}", cached=True)  # told of already
        tell("fine-tunes", "dev 61.0", "rte seed 0, pre-trained", "f", unit="run")
    names = [line.split()[0] for line in screen.lines]
    assert names == ["baselines", "datasets", "shards", "fine-tunes"]
    assert "3 tasks: best constant, bag of words" in screen.lines[0]
    assert "3 tasks: 3,000 rows" in screen.lines[1]
    assert screen.lines[1].endswith(", 2 found")
    assert "rte seed 0, pre-trained: dev 61.0" in screen.lines[3]


def test_a_warning_fits_the_terminal_at_words_and_is_one_line_without_one() -> None:
    words = "the model at s3://books/a-long-folder/another-folder/and-the-last-of-them is odd, and so is all the rest"
    for terminal in (True, False):
        with watched(terminal=terminal, width=80) as screen:
            logging.getLogger("tasks.store").warning(words)
        text = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]|\r", "", "\n".join(screen.lines))
        lines = [line.strip() for line in text.splitlines() if any(word in line for word in words.split()[3:])]
        assert " ".join(lines) == f"warning: {words}"
        assert (len(lines), max(map(len, lines)) <= 80) == ((3, True) if terminal else (1, False))


def test_warnings_show_and_the_rest_is_in_the_file(home: Path) -> None:
    with watched("finetune") as screen:
        TALK.info("a detail")
        logging.getLogger("tasks.store").warning("it is %s\nand goes on", "odd")
        error = InputError("row 3")
        TALK.error("a task failed", exc_info=error)  # the command line prints this one itself
        broken = OSError("disk on fire")
        for run in ("the task", "its flow"):  # Prefect tells of one failure at each level that it passes
            logging.getLogger("prefect.task_runs").error("bad", exc_info=broken, extra={"task_run_name": run})
            logging.getLogger("prefect.task_runs").error("Finished in state Failed('disk on fire')")
    assert screen.lines == ["warning: it is odd", "error: the task: OSError: disk on fire"]
    assert all(words in screen.log for words in ("a detail", "it is odd", "disk on fire", "the task"))
    (file,) = (home / "logs").iterdir()
    assert file.name.startswith("finetune-")


def test_without_a_terminal_progress_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(display.time, "monotonic", lambda: now)
    with watched("pretrain") as screen:
        for step in range(101):
            progress(Underway("pretrain", step / 10_000, (f"{step} left", f"step {step}")))
            now += 12.0  # 20 minutes in all
    told = [int(line.split()[-1]) for line in screen.lines]
    assert told == list(range(5, 101, 5))  # a line a minute, however little of the whole that is
    assert screen.lines[1].split() == ["pretrain", "0%", "10", "left,", "step", "10"]
    assert "step" not in screen.log


def test_work_that_says_nothing_has_a_line_a_minute_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_LINE_EVERY", 0.05)
    monkeypatch.setattr(display, "_LOOK_EVERY", 0.01)
    with watched("pretrain") as screen:
        progress(Underway("pretrain", 0.1, ("the last evaluation runs",)))
        for _ in range(1000):
            if len(screen.lines) < 3:
                time.sleep(0.01)
        tell("pretrain", "perplexity 9")
        time.sleep(0.2)
    assert [line.split()[:3] for line in screen.lines[:3]] == [["pretrain", "10%", "the"]] * 3
    assert "perplexity 9" in screen.lines[-1]


def test_why_nothing_happens_is_said_at_once_and_once() -> None:
    with watched("pretrain") as screen:
        for _ in range(5):
            progress(Underway("pretrain", 0.0, ("waiting in the queue (Resources)",), waits=True))
        for _ in range(5):
            progress(Underway("pretrain", 0.0, ("a worker trains it",)))
    assert [line.split() for line in screen.lines] == [
        ["pretrain", "0%", "waiting", "in", "the", "queue", "(Resources)"],
        ["pretrain", "0%", "a", "worker", "trains", "it"],
    ]


def test_a_terminal_gets_bars_that_leave_nothing_behind() -> None:
    with watched(terminal=True) as screen:
        progress(Underway("fine-tunes", 0.5, ("1 of 2", "0:10 left")))
        progress(Underway("fine-tunes", 0.25, ("loss 0.5",), "rte seed 0"))
        bars = shown_bars()
        assert any("fine-tunes" in bar and "50%" in bar and "1 of 2, 0:10 left" in bar for bar in bars)
        assert any("rte seed 0" in bar and "25%" in bar for bar in bars)
        tell("fine-tunes", "dev 61.0", "rte seed 0", unit="run")
        assert not any("rte seed 0" in bar for bar in shown_bars())
    assert sum("rte seed 0: dev 61.0" in line for line in screen.file.getvalue().splitlines()) == 1


ETA = "1:02 left:03, loss 3.142, validation 3.210, step 1,234"
MADE = "36 documents -> 33 train + 3 held out, 2.1 M words"


@pytest.mark.parametrize(
    ("width", "bar", "stage"),
    [
        (
            60,
            "1:02 left:03, loss 3.142",
            [f"     36 documents -> 33 train + 3 held{4 * ' '}      4.2 s", f"{12 * ' '}out, 2.1 M words"],
        ),
        (80, ETA, [f"     {MADE}{13 * ' '}4.2 s"]),
        (100, f"{ETA}, 5.8k tokens/s", [f"     {MADE}{17 * ' '}4.2 s   3f2a91c04b7d"]),
        (200, f"{ETA}, 5.8k tokens/s", [f"     {MADE}{17 * ' '}4.2 s   3f2a91c04b7d"]),
    ],
)
def test_what_has_no_room_is_left_out_and_nothing_is_cut(width: int, bar: str, stage: list[str]) -> None:
    parts = ("1:02 left:03", "loss 3.142", "validation 3.210", "step 1,234", "5.8k tokens/s")
    with watched(terminal=True, width=width) as screen:
        progress(Underway("fine-tunes", 0.42, parts))
        (line,) = shown_bars(width)
        assert line.rstrip().endswith(f" 42% {bar}")
        assert len(line) <= width
        progress(Underway("fine-tunes", 0.0, ("a worker of the work pool gpu took it and has not begun it",)))
        assert " ".join(" ".join(shown_bars(width)).split()).endswith("has not begun it")
        progress(Underway("fine-tunes", 0.42, parts, "a-task-with-a-name-of-32-letters seed 0, pre-trained"))
        assert all("1:02 left:03" in line for line in shown_bars(width) if " 42%" in line)
        tell("corpus", MADE)
    _, _, told = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.file.getvalue()).partition("corpus ")
    assert "\n".join(told.split("\n")[: len(stage)]) == "\n".join(stage)
    assert all(len(f"corpus {line}") <= width for line in stage)


def shown_bars(width: int = 100) -> list[str]:
    """What the bars look like now."""
    (drawing,) = [
        handler for handler in logging.getLogger("gptmill.progress").handlers if isinstance(handler, display.Display)
    ]
    assert drawing._bars is not None
    paper = Console(file=io.StringIO(), width=width)
    with paper.capture() as captured:
        paper.print(drawing._bars.get_renderable())
    return captured.get().splitlines()


def test_a_meter_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Underway] = []
    monkeypatch.setattr("tasks.tracking.logs.progress", lambda news, line: seen.append(news))
    now = 0.0
    monkeypatch.setattr("tasks.tracking.logs.time.monotonic", lambda: now)
    meter = Meter("zero-shot", "sequences")
    told = meter.counting("cola", 400)
    told(0)
    now = 10.0
    told(100)
    assert [(news.share, news.words) for news in seen] == [
        (0.0, "cola 0 of 400 sequences"),
        (0.25, "0:30 left, cola 100 of 400 sequences"),
    ]


def test_a_speed_has_few_characters() -> None:
    assert [rate(speed) for speed in (849.6, 5829, 12_345, 1_250_000)] == ["850", "5.8k", "12k", "1.2M"]


def test_old_logs_go(home: Path) -> None:
    (home / "logs").mkdir()
    for number in range(30):
        path = home / "logs" / f"pipeline-20260101-0000{number:02}.log"
        path.touch()
        os.utime(path, (number, number))
    with watched():
        TALK.info("x")
    left = sorted(path.name for path in (home / "logs").iterdir())
    assert len(left) == 20
    assert left[0] == "pipeline-20260101-000011.log"


def test_runs_that_begin_in_one_second_have_a_log_each(home: Path) -> None:
    assert len({display._log_file("pipeline") for _ in range(3)}) == 3


def test_a_run_of_prefect_is_silent_but_for_its_stages(
    prefect_server: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from prefect import flow, task

    @flow(name="told", persist_result=False)
    def told() -> None:
        logger().info("corpus abc", extra={"news": Made("corpus", "36 books", 1.0, False, "abc")})

    with watched() as screen:
        told()
    assert [line.split()[0] for line in screen.lines] == ["corpus"]
    assert "Beginning flow run" in screen.log
    assert "Beginning flow run" not in capsys.readouterr().err

    @task(**{**JOB_OPTIONS, "retries": 1, "retry_delay_seconds": 0})
    def broken() -> None:
        raise OSError("disk on fire")

    @flow(name="failing", persist_result=False)
    def failing() -> None:
        broken()

    with watched() as screen:
        logging.getLogger("prefect._internal.concurrency").error("Service failed to process %s", "x" * 1000)
    (line,) = screen.lines
    assert line.startswith("error: Service failed")
    assert len(line) < 320
    assert "x" * 1000 in screen.log

    with watched() as screen, pytest.raises(OSError, match="disk on fire"):
        failing()
    warning, error = screen.lines
    assert warning.startswith("warning: broken")
    assert warning.endswith("failed and is tried again: OSError: disk on fire")
    assert error.startswith("error: broken")
    assert error.endswith(": OSError: disk on fire")

    with watched(verbose=True) as screen:
        told()
    assert screen.lines == []
    assert "Beginning flow run" in screen.log


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_log_that_cannot_be_written_is_not_pages_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(display, "_log_file", lambda _: Path("/dev/full"))
    monkeypatch.setattr(logging, "raiseExceptions", True)
    screen = Screen()
    with pytest.raises(OSError, match="No space left"), shown("pipeline", console=screen.console):
        tell("corpus", "36 documents")
    assert len(screen.lines) == 1
    assert capfd.readouterr().err == ""
