"""Measured servers at a number of users beside the closed form and the simulation.

`python -m bench.served` asks the rows of `sweeps/claims/independent.csv` that state how long a
token of each of as many users takes, `1000 * batch_run / throughput_tok_s`: the users ask again
when they are answered. `NEARKV_EACH=5` takes each fifth row alone.
"""

import csv
import os
import warnings
from pathlib import Path

import numpy as np

from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.study.study import Study

CLAIMS = Path(__file__).parent.parent / "sweeps" / "claims" / "independent.csv"
A_TOKEN = "1000 * batch_run / throughput_tok_s"


def stated(text: str) -> dict[str, str]:
    """Names and values of a column of claims."""
    return dict(pair.split("=", 1) for pair in text.split(";") if pair)


def token_ms(row: dict[str, str], method: str) -> float:
    """A token of each user [ms]."""
    study = Study(
        ("gpu",),
        (row["model"],),
        users=row["batch"],
        context=row["context"],
        output_tokens=row["output_tokens"],
        platforms=(row["platform"],),
        knobs=stated(row["knob"]),
        sets=stated(row["set"]),
        method=method,
    )
    return 1e3 * float(row["batch"]) / float(table(study)["throughput_tok_s"][0])


def main() -> None:
    warnings.simplefilter("ignore")
    with CLAIMS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == A_TOKEN]
    found = []
    print("ms a token of each user: measured, closed form, simulation")
    for row in rows[:: int(os.environ.get("NEARKV_EACH", "1"))]:
        times = (float(row["low"]), token_ms(row, "fluid"), token_ms(row, "simulate"))
        found.append(times)
        print(f"{row['id']:48s}" + "".join(f"{one:9.2f}" for one in times), flush=True)
    measured, closed, simulated = np.array(found).T
    apart = np.abs(closed / simulated - 1)
    within = np.mean(apart <= 0.15)
    print(f"closed form from simulation: median {np.median(apart):.1%}, largest {apart.max():.1%}")
    print(f"within 15 %: {within:.0%} of {len(apart)}")
    for name, times in (("closed form", closed), ("simulation", simulated)):
        print(f"{name} from measured: median {np.median(np.abs(times / measured - 1)):.1%}")


if __name__ == "__main__":
    main()
