"""Students of a model that is there: DistilBERT and TinyBERT."""
