"""What a training process does to its machine before it computes."""

from __future__ import annotations

import subprocess
import sys

import pytest

_STORM = """
import os, torch
from gptcore.machine.device import pick_device

def differs():
    torch.set_num_threads(2)
    torch.randn(400, 400) @ torch.randn(400, 400)  # both threads are there
    pick_device(0)
    x = torch.linspace(-20, 0, 45_800)
    return any(not torch.equal(f(x), f(x)) for f in (torch.exp, torch.tanh))

bad, children = 0, 0
for _ in range(400):
    if children == 8:
        bad += os.wait()[1] != 0
        children -= 1
    if os.fork() == 0:
        os._exit(differs())
    children += 1
while children:
    bad += os.wait()[1] != 0
    children -= 1
print(bad)
"""


@pytest.mark.slow
def test_the_first_call_of_a_vector_function_gives_the_bits_of_every_other() -> None:
    """Many processes on few cores, so that threads meet in the first call; without the remedy some of them differ."""
    done = subprocess.run([sys.executable, "-c", _STORM], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "0"
