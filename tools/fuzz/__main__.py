"""Fuzz the command line, then hold all systems to their properties on thousands of designs.

cd tools; python -m fuzz --seconds 600 --seed 1 --cases 2000
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

from fuzz.campaign import campaign

TESTS = Path(__file__).parents[2] / "tests"

parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--seconds", type=float, default=300.0, help="for the command line")
parser.add_argument("--lines", type=int, default=30_000, help="at most so many command lines")
parser.add_argument("--cases", type=int, default=2000, help="designs a system; 0: none")
options = parser.parse_args()

limit = 8 * 2**30
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
report = campaign(options.seed, options.seconds, options.lines)
print(report.text())
failed = bool(report.faults)
if options.cases:
    environment = {
        **os.environ,
        "NEARKV_CASES": str(options.cases),
        "NEARKV_SEED": str(options.seed),
    }
    tests = [sys.executable, "-m", "pytest", "-q", "-n", "auto"]
    held = ("test_properties.py", "test_more_hardware.py", "test_best_placement.py")
    tests += [str(TESTS / "contracts" / name) for name in held]
    tests.append(str(TESTS / "sweeps/jobs/test_best.py"))
    tests.append(f"--hypothesis-seed={options.seed}")
    failed |= bool(subprocess.run(tests, env=environment, check=False).returncode)
sys.exit(failed)
