"""Processes and where they run: training jobs, partitions side by side."""
