"""The command line: options, what each command does with them, what a terminal shows."""
