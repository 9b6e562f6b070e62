"""Students that learn from a teacher: DistilBERT's and TinyBERT's objectives, rows augmented by a model, and how fast
a model answers.
"""
