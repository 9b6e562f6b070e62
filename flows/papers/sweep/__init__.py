"""A search for settings: trials drawn from a space, trained on rung after rung, of which each keeps the best."""

from flows.papers.sweep.flow import sweep as sweep  # deployments of former versions name it flows.papers.sweep.sweep
