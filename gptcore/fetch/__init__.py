"""Fetching the public datasets: one file over HTTP, its archive unpacked, a dataset put in its place."""
