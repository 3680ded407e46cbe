"""How much: the largest and the best batch, the least hardware that reaches a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.hardware.schema import Key
from nearkv.solvers.search import Crossing, Points, crossings, largest, peak
from nearkv.sweeps.evaluation.probe import Probe, bottleneck, column
from nearkv.sweeps.evaluation.table import plain
from nearkv.sweeps.evaluation.targets import Gauge, Target, gauge, parse_targets, span_of
from nearkv.sweeps.space.sizes import number, size, values
from nearkv.sweeps.space.study import Block, Numbers, Study, blocks

Rows = list[dict[str, Any]]
REACH = 1000.0
"""A number is looked for within this factor of its present value, and a count up to it."""
PRICE = "the rest of the price"
_LOOKS = 241


def best_batches(study: Study) -> Rows:
    """The largest batch served at once and the batch of best throughput, at every design point.

    Returns:
        A row a point: `largest_batch` and the memory that ends it, `best_batch` with its
        `throughput_tok_s` and `step_ms`, and `bound_tok_s` that no batch up to the largest exceeds.

    Raises:
        InputError: the study cannot be evaluated.
    """
    values(study.batch, size, "--batch")
    return aligned(
        [row for block in blocks(replace(study, batch="1")) for row in _batches(Probe(block))]
    )


def aligned(rows: Rows) -> Rows:
    """Give all rows the same keys; what a system does not have is None."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def _batches(probe: Probe) -> Rows:
    def fits(point: Points, batch: Numbers) -> Any:
        estimate = probe.answer(point, {"batch": batch}).estimate
        return np.broadcast_to(
            estimate.fits.ok & np.greater_equal(estimate.batch_run, batch), point.shape
        )

    def rate(point: Points, batch: Numbers) -> Numbers:
        return column(probe.answer(point, {"batch": batch}), "throughput_tok_s", len(point))

    every = np.arange(probe.size)
    most = largest(fits, probe.size)
    best = peak(rate, most)
    at_best = probe.answer(every, {"batch": np.maximum(np.nan_to_num(best.value), 1.0)})
    beyond = probe.answer(every, {"batch": most + 1})
    found = {
        "largest_batch": most,
        "short_of": np.broadcast_to(beyond.estimate.fits.short_of, most.shape),
        "best_batch": best.value,
        "throughput_tok_s": best.rate,
        "step_ms": np.where(most >= 1, column(at_best, "step_ms", probe.size), np.nan),
        "bound_tok_s": best.bound,
        "gap": best.bound / best.rate - 1,
        "method": np.full(probe.size, "bisection, branch and bound"),
    }
    rows = []
    for i in every:
        row = probe.names(int(i), ("batch",))
        rows.append(row | {name: plain(values_[i]) for name, values_ in found.items()})
        rows[-1]["short_of"] = rows[-1]["short_of"] or "memory; more than that run in rounds"
    return rows


@dataclass(frozen=True)
class Line:
    """The values of one hardware number that are looked at.

    Attributes:
        address: `role.key`.
        key: its schema.
        values: SI, rising.
        unit, size: for display, and its size in SI.
    """

    address: str
    key: Key
    values: Numbers
    unit: str
    size: float


def line_of(text: str, block: Block) -> Line:
    """Read `--vary ROLE.KEY` or `--vary ROLE.KEY=LOW:HIGH`, or a knob that stands for a number.

    Raises:
        InputError: no such number, or no value to start from.
    """
    from nearkv.hardware.quantity import unit_of

    name, _, limits = (part.strip() for part in text.partition("="))
    knob = block.system.knobs.get(name)
    address = knob.sets if knob and knob.sets else name
    key = block.platform.key(address)
    role, _, own = address.partition(".")
    stated = block.platform.roles[role].numbers.get(own)
    if limits:
        if limits.count(":") > 1:
            raise InputError(
                f"--vary {text!r}: write the range as {address}=LOW:HIGH; it is searched, not stepped"
            )
        edges = values(limits.replace(":", ","), number(key), f"--vary {address}")
        low, high = edges[0], edges[-1]
        if not low < high:
            raise InputError(
                f"--vary {text!r}: write the range as {address}=LOW:HIGH, low before high"
            )
    elif stated is None or not stated.si:
        raise InputError(
            f"--vary {address}: {block.platform.name} does not state it; give a range, {address}=LOW:HIGH"
        )
    else:
        low, high = (1.0 if key.whole else stated.si / REACH), stated.si * REACH
    looks = np.geomspace(low, high, _LOOKS)
    unit = stated.unit if stated else key.unit
    return Line(
        address, key, np.unique(np.round(looks)) if key.whole else looks, unit, unit_of(unit)[1]
    )


def least_hardware(study: Study, vary: str, wanted: Sequence[str]) -> Rows:
    """The smallest value of a hardware number that reaches the targets, at every design point.

    Where a larger value makes things worse (a price), the largest that still reaches them.

    Args:
        study: what to evaluate.
        vary: `role.key`, with `=LOW:HIGH` to look elsewhere than within `REACH` of its present value.
        wanted: targets; all must be reached.

    Returns:
        A row a point: `limit` (`at least`, `at most`, `from`, `any` or `never`), `value` in `unit`
        (with `from` also `up_to`, where the targets are lost again), the targets' quantities there,
        and `binds`: for the target that is met by least, the resource that takes most of its time,
        or the rest of the price. Targets that are never reached: all this where they come closest.

    Raises:
        InputError: the study, the number or the targets cannot be used.
    """
    targets = parse_targets(wanted)
    rows: Rows = []
    for block in blocks(study):
        line = line_of(vary, block)
        rows += _least(gauge(Probe(block), study, targets), line, targets)
    return aligned(rows)


def _margin(
    measured: Gauge, line: Line, targets: Sequence[Target], point: Points, value: Numbers
) -> Numbers:
    numbers = {line.address: value}
    margins = [target.margin(measured.measure(target, point, numbers)) for target in targets]
    least: Numbers = np.min(margins, axis=0)
    return least


def _least(measured: Gauge, line: Line, targets: Sequence[Target]) -> Rows:
    probe = measured.probe
    every = np.arange(probe.size)
    margin = partial(_margin, measured, line, targets)
    found = crossings(margin, probe.size, line.values, line.key.whole)
    reached = margin(every, np.full(probe.size, line.values[0])) >= 0
    how = "bisection over whole numbers" if line.key.whole else "bisection"
    rows = []
    for i in every:
        mine = [crossing for crossing in found if crossing.point == i]
        limit, value, up_to = _verdict(bool(reached[i]), mine, line)
        if limit == "never":
            margins = margin(np.full(len(line.values), i), line.values)
            value = float(line.values[::-1][np.argmax(margins[::-1])])  # of equals the largest
        there = _at(measured, line, targets, np.array([i]), value)
        row = probe.names(int(i), (line.address,))
        row |= {
            "vary": line.address,
            "limit": limit,
            "value": None if limit in ("never", "any") else value / line.size,
        }
        row |= {"up_to": up_to and up_to / line.size, "unit": line.unit}
        row |= {
            **{name: plain(number_) for name, number_ in there.got.items()},
            "binds": there.binds,
        }
        row |= {"method": how, "looked_at": len(line.values), "gap": _gap(limit, mine)}
        rows.append(row | {"reason": there.why_never(line, value) if limit == "never" else ""})
    return rows


@dataclass(frozen=True)
class _There:
    """What a design does at one value of the number that is varied.

    Attributes:
        got: the targets' quantities.
        worst: the target that is missed most, or met by least.
        binds: what stands behind that target.
        short: the memory that is short and by how many bytes; none where all fit [B].
    """

    got: dict[str, float]
    worst: Target
    binds: str
    short: tuple[str, float]

    def why_never(self, line: Line, value: float) -> str:
        """One sentence on what stands in the way where the targets come closest."""
        at = f"never: at {line.address} = {value / line.size:.6g}{'' if line.unit == '1' else ' ' + line.unit}"
        role, missing = self.short
        if role:
            return f"{at} the {role} memory is short of {missing / 1e9:.4g} GB"
        found = self.got[self.worst.name]
        if not np.isfinite(found):
            return f"{at} {self.worst.against or 'the system'} has no {self.worst.quantity}"
        because = "of the rest of the price" if self.binds == PRICE else f"{self.binds} binds"
        return f"{at} still {self.worst.name} = {found:.4g}{', because ' + because if self.binds else ''}"


def _at(
    measured: Gauge, line: Line, targets: Sequence[Target], point: Points, value: float
) -> _There:
    numbers = {line.address: np.array([value])}
    found = [measured.measure(target, point, numbers) for target in targets]
    margins = [float(target.margin(got)[0]) for target, got in zip(targets, found, strict=True)]
    worst = targets[int(np.argmin(margins))]
    answer = measured.probe.answer(point, numbers=numbers)
    span = span_of(worst.quantity)
    fits = answer.estimate.fits
    return _There(
        got={target.name: float(got[0]) for target, got in zip(targets, found, strict=True)},
        worst=worst,
        binds=str(bottleneck(answer, 1, span)[0])
        if span
        else PRICE
        if worst.quantity == "cost_usd"
        else "",
        short=(str(np.ravel(fits.short_of)[0]), float(np.ravel(fits.short_bytes)[0])),
    )


def _verdict(
    reached: bool, found: Sequence[Crossing], line: Line
) -> tuple[str, float, float | None]:
    """On which side the targets are reached, from where, and up to where if they are lost again."""
    if reached:
        return ("at most", found[0].below, None) if found else ("any", float(line.values[0]), None)
    if len(found) > 1:
        return "from", found[0].above, found[1].below
    return ("at least", found[0].above, None) if found else ("never", float(line.values[-1]), None)


def _gap(limit: str, found: Sequence[Crossing]) -> float | None:
    """Relative distance between the value that reaches and the next that does not."""
    return None if limit in ("never", "any") else found[0].above / found[0].below - 1
