"""The leaderboard that MLflow holds, as a Prefect table."""

from __future__ import annotations

from prefect import flow

from tasks.report.leaderboard import Leaderboard
from tasks.report.result_page import show_leaderboard
from tasks.report.suites import read_leaderboard


@flow(name="leaderboard", flow_run_name="leaderboard", persist_result=False)
def leaderboard() -> Leaderboard:
    """Every suite that MLflow knows, the baselines, and the paper's published rows."""
    board = read_leaderboard()
    show_leaderboard(board)
    return board
