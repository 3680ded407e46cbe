"""Write `docs/validation.md`, a row a paper: `python docs/validation.py`, or `make validation`.

The site shows every claim below that table (`_extensions/every_claim.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from nearkv.sweeps.validation.validate import summary, validate

PAGE = Path(__file__).with_name("validation.md")
SHOWN = [
    "paper",
    "claims",
    "match",
    "inconsistent",
    "near",
    "miss",
    "excluded",
    "runs",
    "predicted",
    "close",
    "median_error",
    "p90_error",
    "blind",
    "blind_close",
]
TEXT = """# Validation: published claims beside their predictions

Match: within 10 %; near: within 25 %; miss: further, explained in [misses](misses.md);
inconsistent: the paper contradicts itself, its tables or physics, with the proof in
[errata](errata.md). Runs are measured and simulated rows; predicted are those that are neither
inputs of the model nor one-sided bounds; close are those of them within 25 %, and the errors are
theirs. Blind claims had been read by none of the authors before the model was finished. The paper
called independent is measurements by others, to which nothing is fitted.

{table}

The site lists every claim here, with where it stands, its prediction and the reason; `nearkv
validate` prints the same rows, each with the command that reproduces it. `make validation` writes
this page.

```{{every-claim}}
```
"""


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The page of these rows, as it is kept in the repository."""
    table = pd.DataFrame(summary(rows))[SHOWN]
    shown = table.to_markdown(index=False, floatfmt=".3f", missingval="-")
    return TEXT.format(table=shown)


if __name__ == "__main__":
    PAGE.write_text(page(validate()), encoding="utf-8")
