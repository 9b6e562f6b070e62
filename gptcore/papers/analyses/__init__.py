"""Ablations of GPT-1: the network of Table 5 that stands in the place of the Transformer."""
