"""Prefect flows, their parameter forms and the command line."""
