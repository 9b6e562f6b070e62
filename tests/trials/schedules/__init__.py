"""Trials of deployments, schedules and lost machines; `python -m tests.trials.schedules`."""
