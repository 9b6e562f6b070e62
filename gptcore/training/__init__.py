"""Optimiser, schedules, the training loop, checkpoints."""
