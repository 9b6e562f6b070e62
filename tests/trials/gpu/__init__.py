"""A trial on a GPU machine: see __main__.py."""
