"""Write `docs/validation.md`, a row a paper: `python docs/validation.py`, or `make validation`.

The site shows every claim below that table (`_extensions/every_claim.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from nearkv.sweeps.validation.score import headline
from nearkv.sweeps.validation.validate import judge_claims

PAGE = Path(__file__).with_name("validation.md")
ERRORS = ["numbers", "within_10", "within_25", "median", "p90"]
TEXT = """# Validation: published claims beside their predictions

For those who want every published claim beside its prediction.
Match: within 10 %; near: within 25 %; miss: further, explained in [misses](misses.md);
inconsistent: the paper contradicts itself, its tables or physics, with the proof in
[the same page](misses.md#contradictions-of-the-papers).

Errors are those of numbers that a measurement or a simulation gave. Counted apart is what agrees by
itself or does not say by how much: yes_no and bounds (one-sided ones, ticks of axes, "about") hold
or do not; restated are inputs of the model, identities and arithmetic; fitted_to are rows that a
number was fitted to. The papers called independent,
independent3, independent4 and capacity are measurements by others, to which nothing is fitted.

{numbers}

Numbers that all authors read only after they had been predicted (blind):

{blind}

Numbers that do not move when any fitted number is a tenth larger:

{unfitted}

What else was counted:

{table}

The site lists every claim here, with where it stands, its prediction and the reason; `nearkv
validate` prints the same rows, each with the command that reproduces it. `make validation` writes
this page.

```{{every-claim}}
```
"""


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The page of these rows, as it is kept in the repository."""
    scores = pd.DataFrame(headline(rows))
    counts = ["paper", "claims", "yes_no", "bounds", "restated", "fitted_to", "excluded"]
    return TEXT.format(
        numbers=_markdown(scores[["paper", *ERRORS]]),
        blind=_of(scores, "blind_"),
        unfitted=_of(scores, "unfitted_"),
        table=_markdown(scores[counts]),
    )


def _of(scores: pd.DataFrame, prefix: str) -> str:
    columns = {f"{prefix}{name}": name for name in ERRORS}
    of_some = scores[scores[f"{prefix}numbers"] > 0]
    return _markdown(of_some[["paper", *columns]].rename(columns=columns))


def _markdown(table: pd.DataFrame) -> str:
    return str(table.to_markdown(index=False, floatfmt=".3f", missingval="-"))


if __name__ == "__main__":
    PAGE.write_text(page(judge_claims()), encoding="utf-8")
