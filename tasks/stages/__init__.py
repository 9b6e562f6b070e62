"""The stages: each takes a fingerprint, looks in the store, runs gptcore, commits and tracks.

Stages that are read together share a module; `stage.py` has what all of them share, and their versions.
"""
