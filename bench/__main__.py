"""Run the benchmarks in this folder, those named or all that take a minute at most.

Each prints one line a measurement.
"""

import pkgutil
import subprocess
import sys

import bench

FOUND = sorted(
    m.name.removeprefix("bench_")
    for m in pkgutil.iter_modules(bench.__path__)
    if m.name.startswith("bench_")
)

MINUTES = {"load", "resume", "served"}
"""Those that run only where they are named."""

for name in sys.argv[1:] or [name for name in FOUND if name not in MINUTES]:
    if name not in FOUND:
        sys.exit(f"bench: unknown benchmark {name!r}; choose from {', '.join(FOUND)}")
    print(f"# {name}", flush=True)
    # a process each: what one tells malloc to keep would make another twice as fast
    run = f"from bench.bench_{name} import main; main()"
    if code := subprocess.run([sys.executable, "-c", run], check=False).returncode:
        sys.exit(code)
