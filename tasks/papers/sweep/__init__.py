"""Searches for better settings: their tables and figures."""
