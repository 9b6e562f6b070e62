"""A search for settings: trials drawn from a space, trained on rung after rung, of which each keeps the best."""
