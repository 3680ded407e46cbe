"""`nearkv.design`: which machine to build or buy within a budget, of all there are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import signature
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Unpack

import numpy as np

from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.costmodel.model.registry import systems as all_systems
from nearkv.hardware.errors import InputError, check_known
from nearkv.sweeps.api.arguments import (
    Axes,
    Models,
    Names,
    Value,
    Values,
    path_of,
    study_of,
)
from nearkv.sweeps.api.tables import table_of_rows
from nearkv.sweeps.evaluate.provenance import place_of
from nearkv.sweeps.evaluate.slo import (
    Target,
    check_quantities,
    higher_is_better,
    parse_targets,
)
from nearkv.sweeps.study.axes import read_axes
from nearkv.sweeps.study.own_systems import load_plugins
from nearkv.sweeps.study.sizes import comma_list, names
from nearkv.sweeps.study.study import Study, sizes_by_default
from nearkv.sweeps.tables.table import Rows, counted

if TYPE_CHECKING:
    import pandas as pd

    from nearkv.sweeps.explore.design.answer import Design, Report
    from nearkv.sweeps.explore.design.atlas import Atlas
    from nearkv.sweeps.explore.design.goal import Goal
    from nearkv.sweeps.explore.design.question import Question, RequestClass

MOST_CELLS = 10_000
"""Cells of the largest grid: each is a search of its own, of a tenth of a second or more."""


def design(
    systems: Study | Names = (),
    model: Models | None = None,
    *,
    budget: Names = (),
    classes: Names = (),
    slo: Names = (),
    minimize: str = "",
    maximize: str = "",
    pareto: str = "",
    users: Values = 0,
    per_round: Values = "",
    best_per: str = "",
    borders: bool = False,
    break_even: str = "",
    servers: Names = (),
    prices: Value = "",
    terms: Mapping[str, float] = MappingProxyType({}),
    rent: bool = False,
    seconds: float = np.inf,
    report: Report | None = None,
    file: Value = "",
    resume: bool = False,
    **axes: Unpack[Axes],
) -> pd.DataFrame:
    """Find the machine that serves a workload best within limits, of all that may be built.

    All servers of the catalogue with all parts that fit their slots are candidates, on every
    system; a machine that cannot be assembled is none. Several contexts, batches or prices make a
    grid, of which each cell is answered as it is alone; `best_per`, `borders` and `break_even` are
    questions of a grid, which may be of one cell.

    Args:
        systems: names; all where none is named. Or a study, which holds model and workload too.
        model: one name, config.json or `load_model` object.
        budget: limits told apart by their units: `100kUSD`, `30USD/h`, `10kW`, `8U`. Several prices
            are an axis of the grid.
        classes: requests that several machines share, `name:context:output:rate` with the rate a
            second, in place of `context` and `output_tokens`; the budget is of all machines.
        slo: limits on columns, as `tpot_ms=66,ttft_s=10`.
        minimize, maximize: the column to make best; by default the least price, in a grid the
            largest `throughput_tok_s`.
        pareto: two or three columns instead, whose front is asked for.
        users: sequences of one batch, which must all be served at once; in place of `batch`. They
            are no `users` of `estimate`, who ask again when answered.
        per_round: sequences that run together at most, of which the best is taken for each machine;
            by default all of them and every power of two.
        best_per: `system`, or `technology` for the best of all systems that keep KV in one place
            and attend in one way; one row of each cell.
        borders: find where exactly the best technology changes.
        break_even: a number of a part, as `lpddr.price`: instead of machines, at which value of it
            the systems that own such a part win each cell, or lose it.
        servers: names or files of servers; all of the catalogue where none is named.
        prices: CSV of part,usd[,low,high,basis,date,source] in place of the catalogue's prices.
        terms: `years`, `usd_kwh`, `pue`, `utilisation` in place of those of ownership.toml.
        rent: rank rented machines beside bought ones, by `usd_hour` or `usd_mtok`.
        seconds: after which the search stops with its best so far.
        report: called with the number of machines that are done, and of all, after every chunk; in
            a grid with the numbers of workloads.
        file: the output of a grid, beside which answers are kept until all are there.
        resume: go on with these.
        axes: batches, contexts, one output_tokens and value of each knob. With a `band` it is also
            said in how many draws of all uncertain numbers the best machine wins, or the band of a
            break-even.

    Returns:
        The best machines, the best first:

        - one workload: a row a system, with its parts;
        - `pareto`: a row a machine of the front, with its parts;
        - `classes`: a row a kind of machine that serves one, with how many `nodes` are built, how
          many of them it keeps `busy`, and `req_s` of it;
        - grid: a row a cell and a system, or technology, with `budget_usd`, or the `reason` why no
          machine serves; with a `band` also `best_share` of 256 draws;
        - `break_even`: a row a cell, with the columns of `sweeps.explore.design.break_even`.

        `attrs` holds

        - `conclusion`, and `asked`, the question in words;
        - `machine`: of each row, as TOML; `command`: prints the row once the name of that file is
          appended;
        - `interrupted`: whether Ctrl-C ended the search;
        - `evaluations`: machines that were evaluated, for one workload;
        - `borders`: rows of them, for a grid.

    Raises:
        InputError: an argument that cannot be used.
        UnmetError: no machine is within the limits.

    >>> spark = design("gpu", "gpt-oss-20b", servers="dgx-spark-desktop", users=4)
    >>> spark["gpus"][0], int(spark["cost_usd"][0])
    ('1 x gb10', 4699)
    """
    from nearkv.sweeps.explore.design.atlas import GROUPS, Atlas
    from nearkv.sweeps.explore.design.goal import PRICE_COLUMN, served_at_once
    from nearkv.sweeps.explore.design.question import Question, read_prices

    if not seconds > 0:
        raise InputError(f"--seconds {seconds:g}: must be a number above 0")
    check_known("argument", axes, [*signature(design).parameters, *Axes.__annotations__])
    shared = _classes(names(classes, "--class"), systems, axes)
    level = _band_level(axes)
    study = _study(systems, model, users, axes)
    study = study.but(per_round=per_round) if per_round else study
    if users and study.per_round:
        raise InputError(
            "--per-round: --users all run at once; leave it out, or state --batch"
        )
    limits = _limits(names(budget, "--budget"), names(slo, "--slo"))
    budgets = [limit for limit in limits if limit.quantity == PRICE_COLUMN]
    lengths = (len(study.context), len(study.batch), len(budgets))
    _check_cells(lengths)
    is_grid = bool(best_per or break_even) or borders or max(lengths) > 1
    if is_grid:
        limits = tuple(limit for limit in limits if limit not in budgets)
        if not (minimize or pareto):
            maximize = maximize or "throughput_tok_s"
    elif users:
        limits = (*limits, served_at_once(study.batch[0]))
    question = Question(
        study=study,
        goal=_goal(minimize, maximize, pareto, limits),
        servers=names(servers, "servers"),
        prices=read_prices(path_of(prices, "prices")),
        terms=terms,
        rents=rent,
        draws=bool(level),
        classes=shared,
    )
    _check_rent(question)
    load_plugins(study.plugins)
    if resume and not is_grid:
        anew = "this question is one search: ask it anew, without --resume"
        raise InputError(f"--resume goes on with a grid; {anew}")
    if not is_grid:
        return _best(question, seconds, report)
    if shared or pareto or seconds < np.inf:
        raise InputError("a grid of workloads takes no --class, --pareto or --seconds")
    per = best_per or GROUPS[0]
    check_known("column", [per], GROUPS, "--best-per")
    counts_draws = bool(level) and not break_even
    grid = Atlas(question, budgets, per, bool(users), counts_draws)
    with _kept(grid, path_of(file, "file"), resume) as kept:
        if break_even:
            return _break_evens(kept, break_even, level, report)
        return _map(kept, borders, report)


def _classes(
    texts: Sequence[str], systems: Study | Names, axes: Axes
) -> tuple[RequestClass, ...]:
    """Classes of requests that several machines share; none where lengths are stated.

    Raises:
        InputError: a text that is no class, or lengths beside classes.
    """
    from nearkv.sweeps.explore.design.question import request_classes

    shared = request_classes(texts)
    is_stated = isinstance(systems, Study) or {"context", "output_tokens"} & axes.keys()
    if shared and is_stated:
        raise InputError(
            "--class states context and output length; leave out a study and both options"
        )
    return shared


def _check_rent(question: Question) -> None:
    """Refuse to rank rented machines beside bought ones by a column that both do not have.

    Raises:
        InputError: a column that is neither a price of an hour nor one of tokens.
    """
    if question.rents and not {*question.goal.objectives} <= {"usd_hour", "usd_mtok"}:
        why = "rented and bought machines compare by the hour alone"
        raise InputError(f"--rent: {why}; --minimize usd_hour or usd_mtok")


def _best(question: Question, seconds: float, report: Report | None) -> pd.DataFrame:
    """The best machines for one workload, or for classes of requests."""
    from nearkv.sweeps.explore.design.answer import best_machines
    from nearkv.sweeps.explore.design.fleet import serve
    from nearkv.sweeps.explore.design.goal import served_at_once

    find = serve if question.classes else best_machines
    answer = find(question, seconds, report)
    at_once = served_at_once(question.study.batch[0]) in question.goal.limits
    table = _table(
        question, answer.rows(), answer.sentences(), answer.designs, at_once=at_once
    )
    table.attrs["interrupted"] = answer.search.is_interrupted
    table.attrs["evaluations"] = answer.search.evaluated
    return table


@contextmanager
def _kept(atlas: Atlas, file: str, resume: bool) -> Iterator[Atlas]:
    """A grid whose answers are kept beside a file until all are there; as it is without a file.

    Raises:
        InputError: the file cannot be written, or answers of another question are beside it.
        KeyboardInterrupt: stopped; its text says how to go on.
    """
    from nearkv.sweeps.jobs.parts import kept_answers

    if not file:
        yield atlas
        return
    with kept_answers(place_of(Path(file)), atlas.depends_on, resume) as store:
        yield replace(atlas, store=store)


def _table(
    question: Question,
    rows: Rows,
    conclusion: Sequence[str],
    machines: Sequence[Design | None],
    at_once: bool,
) -> pd.DataFrame:
    """The answer, with the machine of each row, where it has one, as a file and as a command."""
    # users were stated, though they may be as many as a batch has by default
    stated = ["batch"] if at_once else []
    sizes = [] if question.classes else sizes_by_default(question.study, {*rows[0]}, stated)
    table = table_of_rows(rows, [*conclusion, *sizes])
    table.attrs["machine"] = [each.machine_file() if each else "" for each in machines]
    table.attrs["command"] = [each.command() if each else "" for each in machines]
    table.attrs["interrupted"] = False
    table.attrs["asked"] = question.text
    return table


def _map(atlas: Atlas, borders: bool, report: Report | None) -> pd.DataFrame:
    """The best machines of all cells of a grid."""
    regions = atlas.regions(report)
    every = [region for each in regions for region in each]
    rows = [row for region in every for row in region.rows()]
    machines = [design for region in every for design in region.designs or (None,)]
    said = atlas.sentences(regions)
    table = _table(atlas.question, rows, said, machines, at_once=atlas.at_once)
    table.attrs["borders"] = atlas.borders(regions) if borders else []
    return table


def _break_evens(
    atlas: Atlas, address: str, level: float, report: Report | None
) -> pd.DataFrame:
    """The value of a number at which each cell of a grid changes hands."""
    from nearkv.sweeps.explore.design.break_even import break_even, check_owned

    check_owned(atlas.question, address)
    regions = atlas.regions(report)
    rows = []
    for place, region in product(range(len(regions[0])), regions):
        context, batch = region[place].workload
        name = f"{context:.0f}-{batch:.0f}-{place}-{address}-{level:g}"
        rows.append(atlas.store(name, partial(break_even, region[place], address, level)))
    turned = sum(row["factor"] is not None for row in rows)
    won = sum(row["owner_wins"] for row in rows)
    cells = counted(len(rows), "cell")
    sentence = (
        f"Owners of {address} win {won} of {cells}; {turned} change hands at another value."
    )
    none = [None] * len(rows)
    table = _table(atlas.question, rows, [sentence], none, at_once=atlas.at_once)
    table.attrs["borders"] = []
    return table


def _band_level(axes: Axes) -> float:
    """Take the level of the band out of the axes; 0 where they have none [%].

    Raises:
        InputError: no level of a band.
    """
    if "band" not in axes:
        return 0.0
    level: float = read_axes({"band": axes.pop("band")})["band"]
    if not level:
        raise InputError("--band 0 asks for no draws; leave it out, or state 90")
    return level


def _limits(budget: Sequence[str], slo: Sequence[str]) -> tuple[Target, ...]:
    """Limits on a machine: a budget, and on columns.

    Raises:
        InputError: a limit that cannot be read, or that compares with another system.
    """
    from nearkv.sweeps.explore.design.goal import budget_limits

    targets = parse_targets(slo) if slo else ()
    check_quantities(targets, ())
    for target in targets:
        if target.against:
            raise InputError(f"--slo {target.name}: design compares with no other system")
    return (*budget_limits(budget), *targets)


def _study(
    systems: Study | Names, model: Models | None, users: Values, axes: Axes
) -> Study:
    """The workloads of the question.

    Raises:
        InputError: they differ in more than context and batch, or the study brings a machine.
    """
    if not isinstance(systems, Study):
        systems = names(systems, "systems") or tuple(sorted(all_systems()))
    study = study_of(systems, model, axes)
    if users:
        study = study.but(batch=read_axes({"users": users})["users"])
    lists = (study.models, study.output_tokens, *study.knobs.values(), *study.sets.values())
    has_widths = any(name.startswith("precision.") for name in study.zipped)
    if has_widths or any(len(values) != 1 for values in lists):
        raise InputError(
            "design takes one model, output length and value of a knob or width, not a list"
        )
    numbers = [name for name in study.sets if not name.startswith("precision.")]
    machine = (study.platforms, numbers, study.parts)
    other = (study.traces, study.zipped, study.band, study.method != "fluid")
    if any((*machine, *other)):
        raise InputError(
            "design chooses the machine itself, for one workload of the fluid model; "
            "leave out platforms, parts, numbers that are no widths, traces, pairs, "
            "a method and a band"
        )
    return study


def _check_cells(lengths: Sequence[int]) -> None:
    """Refuse a grid that would take days.

    Args:
        lengths: of the contexts, the batches and the budgets.

    Raises:
        InputError: it has too many cells.
    """
    cells = math.prod(max(length, 1) for length in lengths)
    if cells > MOST_CELLS:
        raise InputError(
            f"{cells:,} cells are more than the {MOST_CELLS:,} that a grid may have; "
            "state fewer contexts, batches or budgets"
        )


def _goal(minimize: str, maximize: str, pareto: str, limits: tuple[Target, ...]) -> Goal:
    """The columns to make best, of each whether more is better, and the limits.

    Raises:
        InputError: several options, or a column that no system has.
    """
    from nearkv.sweeps.explore.design.goal import Goal

    if sum(map(bool, (minimize, maximize, pareto))) > 1:
        raise InputError("--minimize, --maximize and --pareto: give one of them")
    columns = comma_list(pareto) or (minimize or maximize or "cost_usd",)
    check_known("column", columns, COLUMNS, "what is made best")
    if not pareto:
        return Goal(columns, (bool(maximize),), limits)
    if not 2 <= len(set(columns)) <= 3 or len(set(columns)) != len(columns):
        raise InputError(f"--pareto {pareto!r}: name two or three different columns")
    return Goal(columns, tuple(map(higher_is_better, columns)), limits)
