"""Hyper-parameter search: what may be chosen, the trials that are drawn from it, and which of them go on."""
