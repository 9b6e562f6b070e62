"""A training is a value: what flows ask for, run side by side, here or elsewhere, and what comes of it."""
