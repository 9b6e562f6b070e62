"""What single analyses count over the stages' artifacts."""
