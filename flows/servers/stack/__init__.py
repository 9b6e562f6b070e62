"""The local stack: Prefect, MLflow and workers on this machine; the full one on PostgreSQL and an S3 server, too."""
