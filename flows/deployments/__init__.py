"""What a Prefect server is given: work pools, deployments with their forms."""
