"""Answers from prompts, without fine-tuning: GPT-2's experiments."""
