"""Abstracts from titles: "Fine-Tuning GPT-2 to Generate Research Paper Abstracts" (Liu and Zheng 2020)."""
