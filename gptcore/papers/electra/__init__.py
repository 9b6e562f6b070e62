"""ELECTRA: replaced tokens are told in a text whose hidden words a generator has filled in (Clark et al. 2020)."""
