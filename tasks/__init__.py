"""One Prefect task a stage, the artifact store, jobs and tracking."""
