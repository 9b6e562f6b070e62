"""Prefect and MLflow around a command: the temporary server, the local stack, pools, credentials, signals."""
