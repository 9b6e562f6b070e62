"""Tags that tell our runs on a Prefect server from those of others who use it; automations go by them."""

from __future__ import annotations

OFFERED = "gptmill"
"""Of the deployments that people start: the automations start their runs again and tell of their failures."""
INTERNAL = "gptmill-internal"
"""Of what is looked after by whoever started it: runs that a flow starts, and those of the command line."""
TRAINING = "gptmill-training"
"""Of what a flow gives to a worker beside INTERNAL: its starter starts it again, but a worker may be missing."""
