"""What the paper's tables print, as printed."""

from __future__ import annotations

SPLIT = {
    "train": (90_000, 90.11, 20_834_012),
    "valid": (4_940, 4.95, 1_195_056),
    "test": (4_940, 4.95, 1_218_754),
    "total": (99_880, 100.0, 23_247_822),
}
"""Table 1: split -> papers, percentage, tokens."""

EVALUATION = {
    "82M": (2.8394, 3.0111, 2.9996, 17.1063, 20.3107, 20.0768),
    "117M": (2.6216, 2.8779, 2.8686, 13.7579, 17.7773, 17.6126),
    "345M": (2.2768, 2.7907, 2.7825, 11.818, 16.2921, 16.1589),
    "774M": (2.2614, 2.7126, 2.7041, 9.5962, 15.0679, 14.9413),
}
"""Table 8: size -> loss on train, valid and test, then the perplexities. Those of training at 345M do not agree with
each other (exp 2.2768 is 9.7): one of the two is misprinted."""
