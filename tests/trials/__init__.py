"""Trials that take too long or too much of a machine for the suite: kills, bad networks, browsers, clusters, load."""
