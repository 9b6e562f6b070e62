"""Abstracts from titles, by a GPT-2 that is fine-tuned on arXiv's papers."""
