"""A sweep's results: what each trial reached on each rung, as table, picture, settings to use, and runs in MLflow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w
from prefect.artifacts import create_markdown_artifact

from gptcore.base.files import sha256_json
from gptcore.papers.sweep.plan import DEV_SCORE, SCORE, SCORES, Plan, Rung
from gptcore.papers.sweep.space import Range, Value
from tasks.report.card import embedded, linked, shown
from tasks.report.figures import new_canvas
from tasks.report.table import Table
from tasks.store.artifact import canonical
from tasks.tracking.provenance import prefect_page, run_tags
from tasks.tracking.tracker import Run, Tracker
from tasks.tracking.views import SWEEPS, View, metric, save_views, view_link

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PICTURE, _SETTINGS = "parallel-coordinates.png", "sweep.toml"
_WINNER, _FAILED = "#e45756", "#9a9a9a"
_BOTTOM = -0.09  # where the lines of failed trials end, below the axes
_NAMED = 3  # of the trials that failed on a rung


@dataclass(frozen=True)
class Outcome:
    """One trial on one rung."""

    trial: int
    rung: int
    objective: float | None
    """None: it failed."""
    failure: str = ""
    """Why, in one line."""
    updates: int = 0
    """Updates of the training that the rung gives more of to those that go on."""
    seconds: float = 0.0
    """Seconds that the trial's trainings took, whenever that was."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What else was measured."""
    checkpoint: str = ""
    """Digest of the pre-trained model."""


@dataclass(frozen=True)
class SweepResult:
    """A whole sweep."""

    plan: Plan
    outcomes: Sequence[Outcome]
    identity: Mapping[str, Any]
    """Plan and digests that it follows from."""
    notes: Sequence[str] = ()

    @property
    def best_first(self) -> list[Outcome]:
        """What each trial reached at last, the furthest and best first."""
        sign = 1 if self.plan.lower_is_better else -1
        last = {outcome.trial: outcome for outcome in self.outcomes}
        return sorted(last.values(), key=lambda o: (-o.rung, o.objective is None, sign * (o.objective or 0.0), o.trial))

    @property
    def winner(self) -> Outcome:
        """The best on the last rung."""
        return self.best_first[0]

    @property
    def settings(self) -> str:
        """The winner's settings as the text of a --config file, and the command that takes it."""
        plan, best = self.plan, self.winner
        given = "checkpoint" in self.identity
        command = f"finetune-all --checkpoint {best.checkpoint[:12]}" if given else "pipeline"
        seeds = f" --seeds {plan.seeds}" if plan.objective in SCORES else ""
        head = f"# {self.headline}; checkpoint {best.checkpoint[:12]}\n"
        head += f"# gptmill {command} --preset {plan.preset}{seeds} --config {_SETTINGS}\n\n"
        return head + tomli_w.dumps(plan.trials[best.trial - 1].overrides)

    @property
    def headline(self) -> str:
        """The result in few words."""
        best = self.winner
        return f"trial {best.trial}: {self.plan.objective} {number(best)}"

    @property
    def title(self) -> str:
        """What was done, in few words."""
        return f"sweep of {self.plan.preset}, {len(self.plan.trials)} trials by {self.plan.objective}"

    def of(self, trial: int, rung: int) -> Outcome | None:
        """What a trial reached on a rung; None where it was not on it."""
        return next((outcome for outcome in self.outcomes if (outcome.trial, outcome.rung) == (trial, rung)), None)

    def table(self) -> Table:
        """A row a trial, the furthest and best first."""
        return Table.of([self._row(outcome.trial) for outcome in self.best_first])

    def _row(self, trial: int) -> dict[str, str]:
        reached = {length(rung): self.of(trial, rung.number) for rung in self.plan.rungs}
        there = [outcome for outcome in reached.values() if outcome]
        return {
            "trial": str(trial),
            **{name: shown_value(value) for name, value in self.plan.trials[trial - 1].drawn.items()},
            **{on: "failed" if outcome and outcome.failure else number(outcome) for on, outcome in reached.items()},
            "updates": f"{there[-1].updates:,}",
            "seconds": f"{sum(outcome.seconds for outcome in there):,.0f}",
        }

    @property
    def failures(self) -> list[str]:
        """A line for each trial that failed."""
        return [f"trial {o.trial} failed on rung {o.rung}: {o.failure}" for o in self.outcomes if o.failure]

    def text(self) -> str:
        """Table, failures and the winner's settings, for a terminal."""
        how = "lowest" if self.plan.lower_is_better else "highest"
        head = f"{self.title} ({self.plan.unit}, {how} is best)"
        return "\n".join([head, "", self.table().text(), "", *self.failures, *self.notes, "", self.settings])

    def markdown(self) -> str:
        """The page without its picture and links."""
        notes = "\n".join(f"- {note}" for note in (*self.failures, *self.notes))
        parts = (f"# {self.headline}", self.title, self.table().grid(), notes, f"```toml\n{self.settings}```\n")
        return "\n\n".join(parts)

    def draw(self, path: Path) -> Path:
        """Write Inselberg's parallel coordinates to ``path`` (PNG): an axis a setting, then one a rung; a line a trial.

        A line ends at the last rung that its trial reached, is as thick as that is far, and has the colour of what all
        trials have in common: the first rung's result. Those that failed are dashed, and end below the next rung.
        """
        from matplotlib import colormaps
        from matplotlib.colors import ListedColormap

        plan, best = self.plan, self.winner
        first, count = len(plan.axes), len(plan.axes) + len(plan.rungs)
        figure = new_canvas(max(1.5 * count + 1.2, 8.0), 5.0)  # title and note fit
        axes = figure.subplots()
        axes.set(xlim=(-0.35, count - 0.25), ylim=(0, 1))
        axes.set_axis_off()
        heights = np.stack([*self._axes(axes)])
        levels = np.linspace(0, 1, 64)
        # from pale to dark: the palest yellows of the map would vanish on white
        shades = ListedColormap(colormaps["viridis_r"](0.12 + 0.88 * levels))
        axes.scatter(np.full_like(levels, first), levels, c=levels, cmap=shades, marker="s", s=49, lw=0, clip_on=False)
        failed = {outcome.trial for outcome in self.outcomes if outcome.failure}
        lost = defaultdict(list)
        for trial, column in enumerate(heights.T, start=1):
            ys = column[~np.isnan(column)]
            rungs = len(ys) - first
            color = shades(ys[first]) if rungs else _FAILED
            style: dict[str, Any] = {"lw": 0.6 + 0.9 * rungs, "color": color, "zorder": 3 + rungs, "marker": "o"}
            if trial == best.trial:
                style |= {"lw": 3.2, "color": _WINNER, "zorder": 20}
                name = f"trial {trial}: {number(best)}"
                axes.text(count - 0.92, ys[-1], name, va="center", color=_WINNER, weight="bold")
            if trial in failed:
                lost[len(ys)].append(f"trial {trial}")
                ys = np.append(ys, _BOTTOM)
                style |= {"ls": "--", "marker": "x"}
            axes.plot(range(len(ys)), ys, ms=5, markevery=[-1], clip_on=False, **style)
        for place, names in lost.items():
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            named = f"{', '.join(names[:_NAMED])}{more} failed"
            axes.text(place + 0.05, _BOTTOM, named, va="center", fontsize=7.5, color=_FAILED)
        way = "low" if plan.lower_is_better else "high"
        heading = f"{self.title[0].upper()}{self.title[1:]} ({plan.unit}, {way} is good and on top)"
        axes.set_title(heading, fontsize=11, loc="left", pad=48)
        seen = {SCORE: "rows that chose epochs", DEV_SCORE: "dev rows"}.get(plan.objective, "held-out documents")
        note = f"Colour: rung 1, darker is better; thin lines stopped there. Selected on {seen}, never on test rows."
        figure.supxlabel(note, fontsize=8.5, x=0.01, ha="left")
        figure.savefig(path)
        return path

    def _axes(self, host: Axes) -> Iterator[np.ndarray]:
        """Draw each axis, and yield the heights of all trials on it, 0 to 1; NaN where a trial ended before."""
        plan = self.plan
        for place, axis in enumerate(plan.axes):
            title = "\n".join(axis.name.rpartition(".")[::2])
            values = [trial.drawn[axis.name] for trial in plan.trials]
            if isinstance(axis, Range):
                log = " (log)" if axis.log else ""
                yield _axis(host, place, title + log, values, (axis.low, axis.high), log=axis.log)
                continue
            numeric = all(type(value) in (int, float) for value in axis.values)
            choices = sorted(axis.values) if numeric else list(axis.values)  # words stay as they were listed
            places = [choices.index(value) for value in values]
            heights = _axis(host, place, title, places, (0, len(choices) - 1), [shown_value(c) for c in choices])
            # neighbouring lines through one choice would hide one another
            yield heights + np.linspace(-1, 1, len(values)) * min(0.05, 0.004 * len(values))
        for place, rung in enumerate(plan.rungs, start=len(plan.axes)):
            scores = {outcome.trial: outcome.objective for outcome in self.outcomes if outcome.rung == rung.number}
            there = sorted((value for value in scores.values() if value is not None), reverse=plan.lower_is_better)
            reached = [scores.get(trial.number) for trial in plan.trials]
            yield _axis(host, place, f"rung {rung.number}\n{length(rung)}", reached, (there[0], there[-1]))

    def write(self, folder: Path) -> list[Path]:
        """Picture, table (CSV), page and the winner's settings, in this order."""
        texts = {"sweep.csv": self.table().csv(), "sweep.md": self.markdown(), _SETTINGS: self.settings}
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        return [self.draw(folder / _PICTURE), *(folder / name for name in texts)]


def number(outcome: Outcome | None) -> str:
    """What was reached, as tables print it."""
    value = None if outcome is None else outcome.objective
    return "-" if value is None else f"{value:.4g}" if abs(value) < 10 else f"{value:.1f}"


def shown_value(value: Value) -> str:
    """A drawn value as people read it."""
    if isinstance(value, float) and float(f"{value:.4g}") != value:
        return repr(value)  # rounded, two values could look alike
    return shown(value) if isinstance(value, bool | float) else str(value)


def length(rung: Rung) -> str:
    """A rung's share of the full length, in words."""
    return "whole" if rung.part == 1 else f"1/{rung.part} of it"


def _axis(
    host: Axes, place: int, title: str, values: Iterable[Any], ends: tuple[float, float],
    words: Sequence[str] = (), log: bool = False,
) -> np.ndarray:  # fmt: skip
    """Draw a vertical axis, its ends and what lies well between them named, and find the heights of values on it.

    :param values: numbers; None becomes NaN.
    :param ends: what is at the bottom and on top.
    :param words: what stands at 0, 1, 2 ... in place of the numbers.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    host.text(place, 1.07, title, ha="center", fontsize=9)
    axes = host.twinx()
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_position(("data", place))
    axes.yaxis.tick_left()
    axes.set_yscale("log" if log else "linear")
    bottom, top = ends
    axes.set_ylim(bottom if bottom != top else 2 * top or 1.0, top)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if log else MaxNLocator(5))

    def heights(numbers: Iterable[Any]) -> np.ndarray:
        points = np.array([(0.0, value) for value in numbers], dtype=float).reshape(-1, 2)
        return (axes.transScale + axes.transLimits).transform(points)[:, 1]

    ticks = np.arange(len(words))
    if not words:
        between = axes.get_yticks() if bottom != top else ticks
        ticks = np.unique([bottom, top, *between[abs(heights(between) - 0.5) < 0.42]])
        words = [shown(int(tick) if tick == int(tick) else float(tick)) for tick in ticks]
    box = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.75}
    axes.set_yticks(ticks, words, fontsize=8, bbox=box)
    axes.minorticks_off()
    return heights(values)


# --- MLflow and Prefect


def open_sweep(tracker: Tracker, plan: Plan, identity: Mapping[str, Any]) -> Run:
    """The sweep's MLflow run, created or reopened; its trials are its children."""
    key = sweep_key(identity)
    name = f"sweep {plan.preset} {key[:6]}"
    return tracker.open(SWEEPS, name, key, run_tags(kind="sweep", sweep=key[:12]), identity)


def sweep_key(identity: Mapping[str, Any]) -> str:
    """What tells a sweep from others."""
    return sha256_json(canonical({"sweep": identity}))


def open_trial(tracker: Tracker, plan: Plan, key: str, parent: str, trial: int, rung: int) -> Run:
    """The MLflow run of a trial on a rung: its params are what it drew, so that the UI's own charts compare them."""
    job = sha256_json({"sweep": key, "trial": trial, "rung": rung})
    tags = run_tags(kind="trial", sweep=key[:12], trial=str(trial))
    drawn = plan.trials[trial - 1].drawn
    return tracker.open(SWEEPS, _trial_name(trial, rung), job, tags, drawn, parent)


def record_trial(run: Run, outcome: Outcome) -> None:
    """Put what a trial reached, or why it failed, on its run; also where an earlier call has ended that run."""
    if outcome.failure:
        run.set_tags({"failure": outcome.failure})
        return
    reached = {"objective": outcome.objective, "updates": outcome.updates, "wall_seconds": outcome.seconds}
    run.log_results({**_printed({**outcome.metrics, **reached}), "rung": outcome.rung})
    run.set_tags({"checkpoint": outcome.checkpoint[:12], "failure": ""})


def _printed(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Numbers to four decimals: MLflow's table has no format of its own, and its columns are narrow."""
    return {name: round(value, 4) for name, value in metrics.items() if value is not None}


def publish_sweep(tracker: Tracker, run: Run, result: SweepResult, folder: Path) -> None:
    """Picture, table and settings on the sweep's MLflow run, and with a link on the calling Prefect run's page."""
    files = result.write(folder)
    best, key = result.winner, sweep_key(result.identity)
    page = result.markdown()
    digest = sha256_json({"page": page})
    if run.opened_tags.get("result") != digest:  # a trial that had failed may have gone well this time, and won
        for path in files:
            run.log_artifact(path)
        run.log_results(_printed({"objective": best.objective, **best.metrics}))
        _set_aside(tracker, key, result.outcomes)
    trial = {"winner": f"trial {best.trial}", "winner_checkpoint": best.checkpoint}
    run.set_tags({**trial, "result": digest, "mlflow.note.content": page})
    save_views(tracker, SWEEPS, [trials_view(result.plan, key)], "Sweeps, each with its trials by rung.\n")
    chart = view_link(tracker, SWEEPS, f"sweep-{key[:12]}") + "&compareRunsMode=CHART"
    links = {"MLflow: this sweep, with the picture": run.url, "MLflow: its trials": chart}
    if address := prefect_page():
        links["Prefect run"] = address
    body = f"{page}\n{embedded(result.title, files[0])}\n\n{linked(links)}\n"
    create_markdown_artifact(body, description=f"{result.title}: {result.headline}")


def _set_aside(tracker: Tracker, key: str, outcomes: Sequence[Outcome]) -> None:
    """Take out of the view the trials that another winner's way left behind on a rung."""
    there = {_trial_name(outcome.trial, outcome.rung) for outcome in outcomes}
    for trial in tracker.search(SWEEPS, {"kind": "trial", "sweep": key[:12]}):
        if trial.info.run_name not in there:
            tracker.client.set_tag(trial.info.run_id, "kind", "trial set aside")


def _trial_name(trial: int, rung: int) -> str:
    return f"trial {trial}, rung {rung}"


def trials_view(plan: Plan, key: str) -> View:
    """A sweep's trials, best first, and MLflow's own chart of them."""
    settings = [axis.name for axis in plan.axes]
    return View(
        f"sweep-{key[:12]}",
        f"Sweep {key[:6]}",
        f"tags.sweep = '{key[:12]}' and tags.kind = 'trial'",
        metric("objective"),
        {metric("objective"): 110, metric("rung"): 70, metric("updates"): 90, metric("wall_seconds"): 110}
        | {f"params.`{name}`": 130 for name in settings},
        ascending=plan.lower_is_better,
        parallel=(settings, ["rung", "objective"]),
    )
