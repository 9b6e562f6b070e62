"""Forms: the parameters of flows and commands, one definition of each option, with their checks and choices."""
