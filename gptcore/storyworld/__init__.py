"""A generated, synthetic world: books and all twelve datasets about it."""
