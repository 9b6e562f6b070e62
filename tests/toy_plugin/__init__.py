"""A package that adds a command, a deployment and an option to the core, by its tables alone."""
