"""What the analyses share: rows of the leaderboard, what a reader must know, how numbers are written."""

from __future__ import annotations

from flows.chain import Chain
from flows.fanout import score_tasks
from flows.finetune import seeds_of, settings_of
from flows.forms.parameters import AnalysisParameters
from flows.grid import Arm, Grid
from tasks.report.analysis import Analysis, publish
from tasks.report.card import start_note, synthetic_note
from tasks.report.leaderboard import Leaderboard


def scored(chain: Chain, parameters: AnalysisParameters, tasks: list[str], arms: list[Arm]) -> Leaderboard:
    """The arms' rows in their order, then the baselines' and the published ones, cut to ``tasks``."""
    wanted = [task for task in chain.tasks if task.name in tasks]
    datasets = {task: chain.datasets[task] for task in tasks}
    settings, seeds = settings_of(chain.preset, chain.tasks), seeds_of(chain.preset, parameters.seeds)
    grid = Grid(chain.store, chain.datasets_url, wanted, datasets, arms, settings, seeds)
    return score_tasks(grid, parameters.jobs).only(tasks)


def named(chain: Chain, title: str) -> str:
    """A figure's own title: a picture travels without its page."""
    return f"{title} (preset {chain.preset.name}, {'synthetic' if synthetic_notes(chain) else 'real'} data)"


def synthetic_notes(chain: Chain) -> tuple[str, ...]:
    """The note that the books, or rows of any dataset, are generated; nothing where all are real."""
    inputs = [chain.corpus, *chain.datasets.values()]
    return next(filter(None, (synthetic_note(chain.store.manifest(artifact)) for artifact in inputs)), ())


def about(chain: Chain) -> list[str]:
    """What a reader must know of the model behind the numbers."""
    result = chain.store.manifest(chain.checkpoint)["counts"]
    return [
        *synthetic_notes(chain),
        f"preset {chain.preset.name}: {result['tokens_seen']:,} tokens seen in pre-training, "
        f"held-out perplexity {result['validation/perplexity']:.1f}",
        *start_note(chain.store.manifest(chain.checkpoint)),
    ]


def publish_all(found: list[Analysis], parameters: AnalysisParameters) -> list[Analysis]:
    for analysis in found:
        publish(analysis, parameters.out)
    return found


def percent(value: float) -> str:
    return f"{value:.1f}"


def cell_text(value: float | None) -> str:
    return "-" if value is None else percent(value)
