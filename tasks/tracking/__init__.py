"""MLflow: runs and who owns them, what a running job shows, where a number came from."""
