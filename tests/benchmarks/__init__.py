"""`make bench`: what this machine does a second, beside what its users would do without gptmill.

    python -m tests.benchmarks [--seconds 6] [--only text,step]

Ours and the peer take turns in one process or one run, for machines are noisy: the ratio counts. Nothing here is
asserted; that fast ways give the results of slow ones is what the suite is for.
"""
