"""What every room stands on: errors, files on any fsspec URL, Arrow, typed settings, named seeds."""
