"""Measures of a language model that need no fine-tuning."""
