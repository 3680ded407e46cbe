"""nearkv: an analytical cost model of long-context LLM inference on heterogeneous memory.

>>> import nearkv
>>> table = nearkv.compare(["flexgen-ssd", "hilos"], model="opt-66b", context=[16_384, 65_536])
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearkv.costmodel.algebra.span import (
        Leaf as Leaf,
        Span as Span,
        overlap as overlap,
        pipeline as pipeline,
        serial as serial,
        stream as stream,
    )
    from nearkv.costmodel.model.estimate import (
        Estimate as Estimate,
        Fits as Fits,
        fits as fits,
    )
    from nearkv.costmodel.model.registry import Knob as Knob, system as system
    from nearkv.hardware.errors import (
        InputError as InputError,
        NearkvError as NearkvError,
        NearkvWarning as NearkvWarning,
    )
    from nearkv.sweeps.api.arguments import Axes as Axes
    from nearkv.sweeps.api.catalogues import (
        columns as columns,
        load_model as load_model,
        load_platform as load_platform,
        models as models,
        parts as parts,
        platforms as platforms,
        systems as systems,
    )
    from nearkv.sweeps.api.design import design as design
    from nearkv.sweeps.api.estimate import Prediction as Prediction, estimate as estimate
    from nearkv.sweeps.api.evidence import (
        Fit as Fit,
        calibrate as calibrate,
        coverage as coverage,
        validate as validate,
    )
    from nearkv.sweeps.api.questions import (
        compare as compare,
        pareto as pareto,
        sensitivity as sensitivity,
        sweep as sweep,
    )
    from nearkv.sweeps.api.reuse import reuse as reuse
    from nearkv.sweeps.api.solve import solve as solve
    from nearkv.sweeps.figures import plot as plot
    from nearkv.sweeps.study.study import Study as Study

__version__ = "0.2.0"

if not os.path.isdir(os.path.join(os.path.dirname(__file__), "hardware")):
    raise ImportError(
        "the links in src/nearkv to the folders of this checkout are text files; on Windows, "
        "turn on developer mode and clone with `git clone -c core.symlinks=true`"
    )

_HOMES = {
    "costmodel.algebra.span": (
        "Leaf",
        "Span",
        "overlap",
        "pipeline",
        "serial",
        "stream",
    ),
    "costmodel.model.estimate": ("Estimate", "Fits", "fits"),
    "costmodel.model.registry": ("Knob", "system"),
    "hardware.errors": ("InputError", "NearkvError", "NearkvWarning"),
    "sweeps.api.arguments": ("Axes",),
    "sweeps.api.catalogues": (
        "columns",
        "load_model",
        "load_platform",
        "models",
        "parts",
        "platforms",
        "systems",
    ),
    "sweeps.api.evidence": ("Fit", "calibrate", "coverage", "validate"),
    "sweeps.api.design": ("design",),
    "sweeps.api.estimate": ("Prediction", "estimate"),
    "sweeps.api.questions": ("compare", "pareto", "sensitivity", "sweep"),
    "sweeps.api.reuse": ("reuse",),
    "sweeps.api.solve": ("solve",),
    "sweeps.figures": ("plot",),
    "sweeps.study.study": ("Study",),
}
"""Module -> public names, imported when first used."""

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604
    "__version__",
    *_HOME_OF,
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'nearkv' has no attribute {name!r}")
    from importlib import import_module

    home = f"nearkv.{_HOME_OF[name]}"
    value: object = getattr(import_module(home), name, None) or import_module(
        f"{home}.{name}"
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names that a shell completes."""
    return sorted({*globals(), *__all__})
