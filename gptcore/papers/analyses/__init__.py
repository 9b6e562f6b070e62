"""What the papers' analyses measure: n-grams that a test set shares with the training text."""
