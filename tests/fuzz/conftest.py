"""`make fuzz` is these tests with 10,000 inputs a reader: the profile `fuzz`; its counts are printed at the end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "fuzz", max_examples=10_000, deadline=timedelta(seconds=30), suppress_health_check=list(HealthCheck)
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counted = [dict(report.user_properties) for report in terminalreporter.getreports("passed")]
    rows = [found for found in counted if "reader" in found]
    if rows and settings.get_current_profile_name() == "fuzz":
        terminalreporter.write_line(f"{'reader':<24} {'inputs':>8} {'read':>8} {'refused':>8} {'MB':>6}")
        for row in rows:
            numbers = f"{row['inputs']:>8,} {row['read']:>8,} {row['refused']:>8,} {row['megabytes']:>6,}"
            terminalreporter.write_line(f"{row['reader']:<24} {numbers}")
