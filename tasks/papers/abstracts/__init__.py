"""Abstracts from titles: a language model fine-tuned on arXiv's papers, what it writes, and the paper's tables."""
