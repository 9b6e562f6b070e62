"""`python -m flows.cli`, the same as `gptmill`."""

from __future__ import annotations

import sys

from flows.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
