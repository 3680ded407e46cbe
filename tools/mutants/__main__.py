"""Change models and solvers one expression at a time; some test must notice each change.

cd tools; python -m mutants --count 300 --seed 1 --jobs 2
"""

from __future__ import annotations

import argparse
import resource
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from mutants.covering import Covering
from mutants.draw import Mutant, sample
from mutants.trial import Place

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Print the test that noticed each mutant, then the share of each module that was noticed."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--skip", type=int, default=0, help="so many of a seed that were tried")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--under", default="", help="a folder or module to draw from alone")
    parser.add_argument("--covering", type=Path, default=ROOT / "out" / "covering")
    options = parser.parse_args()
    options.covering.mkdir(parents=True, exist_ok=True)
    covering = Covering(ROOT, options.covering, options.jobs)
    drawn = sample(ROOT, options.skip + options.count, options.seed, options.under)
    mutants = drawn[options.skip :]
    with TemporaryDirectory() as folder:
        noticed_by = try_out(mutants, covering, Path(folder), options.jobs)
    report(mutants, noticed_by)


def try_out(mutants: list[Mutant], covering: Covering, folder: Path, jobs: int) -> list[str]:
    """The test that noticed each mutant, empty where none did."""
    free: SimpleQueue[Place] = SimpleQueue()
    places = [Place(ROOT, folder / str(job)) for job in range(jobs)]
    for place in places:
        free.put(place)

    def trial(mutant: Mutant) -> str:
        place = free.get()
        try:
            test = place.noticed_by(mutant, covering)
        finally:
            free.put(place)
        said = f"noticed by {test}" if test else "lives"
        print(f"{mutant.file}:{mutant.line} {mutant.operator} {mutant.occurrence} {said}")
        print(f"    {mutant.text}", flush=True)
        return test

    with ThreadPoolExecutor(jobs) as pool:
        noticed_by = list(pool.map(trial, mutants))
    failing = places[0].failure(sorted({test for test in noticed_by if "::" in test}))
    for place in places:
        place.close()
    if failing:
        raise SystemExit(f"{failing} fails without a mutant: nothing is shown")
    return noticed_by


def report(mutants: list[Mutant], noticed_by: list[str]) -> None:
    """The share of each module that was noticed, and the processor's time."""
    drawn = Counter(mutant.file for mutant in mutants)
    noticed = Counter(mutant.file for mutant, test in zip(mutants, noticed_by, strict=True) if test)
    for file, count in sorted(drawn.items()):
        print(f"{noticed[file]:4} of {count:4} noticed in {file}")
    total = noticed.total()
    print(f"{total} of {len(mutants)} noticed, {total / len(mutants):.1%}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{(used.ru_utime + used.ru_stime) / 60:.1f} minutes of processor time")


if __name__ == "__main__":
    main()
