"""How long `nearkv --help` takes beside importing typer alone, the least of ten runs each."""

import subprocess
import sys
import time
from pathlib import Path


def least(*command: str | Path) -> float:
    """Shortest wall-clock time of a command."""
    spent = []
    for _ in range(10):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        spent.append(time.perf_counter() - start)
    return min(spent)


def main() -> None:
    typer = least(sys.executable, "-c", "import typer")
    ours = least(Path(sys.executable).with_name("nearkv"), "--help")
    print(
        f"nearkv --help: {ours * 1e3:.0f} ms, import typer: {typer * 1e3:.0f} ms, "
        f"ratio {ours / typer:.2f} (limit 1.2)"
    )
