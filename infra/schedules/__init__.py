"""Trials of deployments, schedules and lost machines; `python -m infra.schedules`."""
