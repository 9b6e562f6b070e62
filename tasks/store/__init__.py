"""Artifacts: what they are called, where they lie, how they are made once, found again and traced back."""
