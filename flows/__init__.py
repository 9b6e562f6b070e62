"""What runs, and in which order: Prefect flows, the forms that they are told by, the command line."""

# Deployments of former versions name flows by where they were: flows.train.train, flows.reason.reason.
__path__ += [f"{__path__[0]}/{room}" for room in ("trainings", "knowledge")]
