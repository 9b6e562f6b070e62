"""What may go wrong on a real machine, done on purpose: `python -m tests.trials.chaos`."""
