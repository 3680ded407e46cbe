"""Sweeps that are killed at random moments and resumed: the bytes, and how much work is lost."""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRID = (
    "--system hilos --model opt-66b --batch 1:100:+1 --context 4k:200k:+4k "
    "--set csd.count=1:200:+1 --set uplink.bandwidth=10GB/s:14GB/s:+1GB/s --quiet"
)
KILLS = 10


def command(file: Path) -> list[str]:
    """The sweep into a file, new or where it was left."""
    nearkv = Path(sys.executable).with_name("nearkv")
    return [str(nearkv), "sweep", *GRID.split(), "-o", str(file), "--resume"]


def parts(file: Path) -> dict[str, float]:
    """Finished parts, and when each was."""
    folder = file.with_name(f".{file.name}.partial") / "parts"
    return {path.name: path.stat().st_mtime for path in folder.glob(f"part-*{file.suffix}")}


def killed(file: Path, after: float) -> float:
    """Kill a sweep some time after its first new part; the work since its last part [s]."""
    before = set(parts(file))
    process = subprocess.Popen(command(file), stderr=subprocess.DEVNULL)
    while process.poll() is None and set(parts(file)) <= before:
        time.sleep(0.01)
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    at = time.time()
    process.wait()
    return max(at - max(parts(file).values(), default=at), 0.0)


def content(file: Path) -> bytes:
    """All bytes of an output."""
    files = sorted(file.iterdir()) if file.is_dir() else [file]
    return b"".join(part.read_bytes() for part in files)


def main() -> None:
    for form in ("csv", "parquet", "jsonl"):
        with tempfile.TemporaryDirectory() as folder:
            whole, file = Path(folder) / f"whole.{form}", Path(folder) / f"killed.{form}"
            subprocess.run(command(whole), check=True, stderr=subprocess.DEVNULL)
            lost = [killed(file, random.uniform(0, 0.5)) for _ in range(KILLS)]
            subprocess.run(command(file), check=True, stderr=subprocess.DEVNULL)
            same = "the same bytes" if content(whole) == content(file) else "OTHER BYTES"
            print(
                f"{form}: killed {KILLS} times and resumed, {same}; lost at most "
                f"{max(lost):.2f} s of work a time (at most 5)"
            )


if __name__ == "__main__":
    main()
