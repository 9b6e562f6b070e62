"""Answers from prompts instead of fine-tuning: zero-shot as GPT-2's paper evaluates, few-shot as GPT-3's does."""
