"""The fake job with the manners of a real one: it ends with its parent."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from gptcore.machine.process import die_with_parent
from tests.tasks import fake_job

if __name__ == "__main__":
    path = Path(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # noted properly by what follows
    die_with_parent()
    sys.exit(fake_job.main(json.loads(path.read_text()), path.parent))
