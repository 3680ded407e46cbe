"""Change models and solvers one expression at a time; some test must notice each change.

cd tests; python -m mutants --count 300 --seed 1 --jobs 2
"""

from __future__ import annotations

import argparse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from mutants.covering import Covering
from mutants.draw import Mutant, sample
from mutants.trial import copy, survives

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Print every survivor, then what share of the mutants of each module was noticed."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--covering", type=Path, default=ROOT / "out" / "covering")
    options = parser.parse_args()
    options.covering.mkdir(parents=True, exist_ok=True)
    covering = Covering(ROOT, options.covering)
    mutants = sample(ROOT, options.count, options.seed)
    places: SimpleQueue[Path] = SimpleQueue()
    with TemporaryDirectory() as folder:
        for job in range(options.jobs):
            places.put(copy(ROOT, Path(folder) / str(job)))

        def lives(mutant: Mutant) -> bool:
            place = places.get()
            try:
                return survives(mutant, place, covering)
            finally:
                places.put(place)

        with ThreadPoolExecutor(options.jobs) as pool:
            outcomes = list(pool.map(lives, mutants))
    report(mutants, outcomes)


def report(mutants: list[Mutant], outcomes: list[bool]) -> None:
    """Survivors, and the share of each module that was noticed."""
    survivors = [mutant for mutant, lives in zip(mutants, outcomes, strict=True) if lives]
    for mutant in survivors:
        print(f"lives: {mutant.file}:{mutant.line} {mutant.operator} {mutant.occurrence}")
    drawn = Counter(mutant.file for mutant in mutants)
    living = Counter(mutant.file for mutant in survivors)
    for file, count in sorted(drawn.items()):
        print(f"{count - living[file]:4} of {count:4} noticed in {file}")
    noticed = len(mutants) - len(survivors)
    print(f"{noticed} of {len(mutants)} noticed, {noticed / len(mutants):.1%}")


if __name__ == "__main__":
    main()
