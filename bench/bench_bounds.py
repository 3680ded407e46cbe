"""What bounds spare: the best of 10^10 points, beside a visit of a tenth of them."""

import sys
from pathlib import Path

from bench.bench_sweep import HUNDRED_MILLION, VISITING
from bench.processes import cost_of

BATCHES = "1:1000:+1"
RATES = "1GB/s:100GB/s:+1GB/s"


def command(rates: str) -> list[str]:
    """The best 100 of a grid with ten times the batches, and so many rates."""
    replaced = {"1:100:+1": BATCHES, "csd.p2p_read=1GB/s:10GB/s:+1GB/s": f"csd.p2p_read={rates}"}
    return [replaced.get(word, word) for word in HUNDRED_MILLION]


def main() -> None:
    nearkv = Path(sys.executable).with_name("nearkv")
    with_bounds = cost_of([nearkv, *command(RATES)])
    print(f"10^10 points with bounds: {with_bounds.cpu:.1f} s, {with_bounds.memory / 1e6:.0f} MB")
    visited = cost_of([sys.executable, "-c", VISITING, *command("1GB/s:10GB/s:+1GB/s")])
    print(
        f"10^9 points, all visited: {visited.cpu:.1f} s, "
        f"{visited.cpu / with_bounds.cpu:.1f} times as long (at least 1)"
    )
