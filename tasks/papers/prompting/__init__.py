"""Prompts answered without fine-tuning: their table."""
