"""Students that learn from a teacher: DistilBERT's and TinyBERT's objectives, and rows augmented by a model."""
