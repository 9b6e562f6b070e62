"""Students beside their teacher: the stage that measures how fast a model answers."""
