"""An analysis of another package, which is told of by an entry point alone."""
