"""Questions that claims put to the models: studies, estimates, arithmetic on catalogued numbers."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Numbers, Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.metrics import COLUMNS, Evaluated
from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.catalog import load_llm, load_part, load_platform, names
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.machine import Machine
from nearkv.hardware.platform import Platform
from nearkv.hardware.schema import Quantity
from nearkv.sweeps.evaluate.columns import (
    FIGURE_PREFIXES,
    FOOTPRINT,
    check_rows,
    evaluate,
    stack,
)
from nearkv.sweeps.study.grid import Block, Mesh
from nearkv.sweeps.study.sizes import comma_list, pairs, size
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import Columns
from nearkv.sweeps.validation.claims import FOLDER, load, papers


@dataclass(frozen=True)
class WordedStudy:
    """A study in words; hashable, because many claims ask for the same table.

    Attributes:
        system, model, platform: comma-separated names.
        batch, context, output_tokens, trace, method: as on the command line; the defaults of a
            study where blank.
        set, knob, part: `name=value;name=value`.
        users: as on the command line; blank for a batch.
    """

    system: str
    model: str
    batch: str = ""
    context: str = ""
    output_tokens: str = ""
    platform: str = ""
    trace: str = ""
    method: str = ""
    set: str = ""
    knob: str = ""
    part: str = ""
    users: str = ""

    @property
    def study(self) -> Study:
        """The study to evaluate.

        Raises:
            InputError: a list that cannot be read.
        """
        return Study(
            systems=comma_list(self.system),
            models=tuple(map(beside_claims, comma_list(self.model))),
            batch=self.batch or Study.batch,
            context=self.context or Study.context,
            output_tokens=self.output_tokens or Study.output_tokens,
            platforms=tuple(map(beside_claims, comma_list(self.platform))),
            sets=pairs(filter(None, self.set.split(";")), "set"),
            knobs=pairs(filter(None, self.knob.split(";")), "knob"),
            traces=comma_list(self.trace),
            method=self.method or Study.method,
            users=self.users or Study.users,
            parts=self.parts,
        )

    @property
    def parts(self) -> dict[str, str]:
        """Parts that take the place of the platform's own, by role."""
        swapped = pairs(filter(None, self.part.split(";")), "part")
        return {role: beside_claims(name) for role, name in swapped.items()}


def beside_claims(name: str) -> str:
    """A name of the catalogue as it is; that of a file kept beside the claims as its path."""
    file = FOLDER / name
    return str(file) if file.is_file() else name


@cache
def blocks_of(question: WordedStudy) -> tuple[Block, ...]:
    """The design points of a question.

    Raises:
        InputError: the question refers to something that does not exist.
    """
    return tuple(blocks(question.study))


@cache
def columns_of(question: WordedStudy) -> Columns:
    """The table that answers a question.

    A queue is simulated once, whichever questions ask about it.

    Raises:
        InputError: the question refers to something that does not exist.
    """
    queues = _queues(question) if question.method == "simulate" else [question]
    if queues == [question]:
        return stack(evaluate(blocks_of(question), (FOOTPRINT, *FIGURE_PREFIXES)))
    return stack([columns_of(queue) for queue in queues])


def _queues(question: WordedStudy) -> list[WordedStudy]:
    """A question about every queue of a simulation, in the order of its rows."""
    systems = comma_list(question.system)
    if len(systems) > 1 and not question.platform:
        return [question]  # they share the platform of the first
    knobs = dict.fromkeys(systems, question.knob)
    if len(systems) > 1:  # a knob is of the systems that have it
        stated = pairs(filter(None, question.knob.split(";")), "knob")
        for system in systems:
            own = find_system(system).knobs
            words = [f"{name}={value}" for name, value in stated.items() if name in own]
            knobs[system] = ";".join(words)
    names = product(systems, comma_list(question.model), comma_list(question.trace))
    return [
        replace(
            question,
            system=system,
            model=model,
            trace=trace,
            knob=knobs[system],
            platform=question.platform or find_system(system).platform,
        )
        for system, model, trace in names
    ]


@dataclass(frozen=True, eq=False)
class BlockAnswer:
    """Answers of a system to the design points of a block, at k values of hardware numbers.

    Attributes:
        evaluated: the estimate, and the machine it is on; of more points, where several blocks
            were asked together.
        shape: axes of all these points, and the k values behind them.
        start, stop: those of the block.
        known: columns that were computed, of all points.
    """

    evaluated: Evaluated
    shape: tuple[int, ...]
    start: int = 0
    stop: int | None = None
    known: dict[str, Numbers] = field(default_factory=dict)

    def column(self, name: str, infeasible: bool = False) -> Numbers:
        """One of `metrics.COLUMNS` at every point (points, k); NaN where it does not fit.

        Args:
            name: of the column.
            infeasible: whether points that do not fit have their time all the same.
        """
        if name not in self.known:
            self.known[name] = self._spread(COLUMNS[name].compute(self.evaluated))
        values = self.known[name]
        if not infeasible:
            fits = self._spread(self.evaluated.estimate.fits.ok)
            values = np.where(fits, values, np.nan)
        return values[self.start : self.stop]

    def _spread(self, values: Real | Booleans) -> Numbers:
        everywhere = np.broadcast_to(np.asarray(values, dtype=float), self.shape)
        return everywhere.reshape(-1, self.shape[-1])


def ask(block: Block, numbers: Mesh, points: Mesh | None = None) -> BlockAnswer:
    """Ask a block at k values of hardware numbers by `role.key` [SI].

    Args:
        block: the design points.
        numbers: those that the block sets itself stay as set.
        points: values of its axes in place of the grid, one each point.
    """
    count = len(next(iter(numbers.values()), (0,)))
    mesh, shape = points, block.grid.shape
    if mesh is None:
        mesh = block.grid.mesh(block.grid.whole)
    else:
        shape = (max(len(values) for values in mesh.values()),)
        mesh = {axis: _once(values) for axis, values in mesh.items()}
    # hardware numbers lie along one more axis, the last
    mesh = {axis: values[..., np.newaxis] for axis, values in mesh.items()}
    stated = block.sets.values()
    free = {address: values for address, values in numbers.items() if address not in stated}
    return BlockAnswer(block.answer(mesh, free), (*shape, count))


def _once(values: Numbers) -> Numbers:
    """One value where all are equal: formulas are faster with a number."""
    return values[:1] if np.all(values == values[0]) else values


_ANSWERS: dict[WordedStudy, tuple[BlockAnswer, ...]] = {}


def answers_of(question: WordedStudy) -> tuple[BlockAnswer, ...]:
    """Answers of formulas to each block of a question.

    Of two values of its hardware numbers the first are as stated; in the second all that are
    fitted are a tenth larger.

    Raises:
        InputError: the question refers to something that does not exist, or has too many points.
    """
    ask_together([question])
    return _ANSWERS[question]


def ask_together(questions: Iterable[WordedStudy]) -> None:
    """Let `answers_of` know some questions; blocks that differ in values of axes are one.

    A call of a system costs as much for many points as for one.

    Raises:
        InputError: as `answers_of`.
    """
    new = [question for question in dict.fromkeys(questions) if question not in _ANSWERS]
    for question in new:
        check_rows(blocks_of(question))
    asked = [block for question in new for block in blocks_of(question)]
    answers = answers_at(asked, _as_fitted)
    for question in new:
        _ANSWERS[question] = tuple(answers[id(block)] for block in blocks_of(question))


def _as_fitted(block: Block) -> Mesh:
    """Fitted numbers of a block as stated, and a tenth larger [SI]."""
    factors = np.array([1.0, 1.1])
    fitted = fitted_of(block.platform)
    return {address: factors * number.si for address, number in fitted.items()}


def answers_at(
    asked: Iterable[Block], numbers: Callable[[Block], Mesh]
) -> dict[int, BlockAnswer]:
    """Answers to blocks, by the identity of each, at k values of hardware numbers.

    Args:
        asked: the blocks; those that differ in values of axes are asked together.
        numbers: k values of numbers by `role.key`, alike for blocks of one platform [SI].
    """
    alike: dict[object, dict[int, Block]] = {}
    for block in asked:
        alike.setdefault(_kind(block), {})[id(block)] = block
    answers: dict[int, BlockAnswer] = {}
    for group in alike.values():
        blocks = list(group.values())
        of_blocks = _ask_group(blocks, numbers(blocks[0]))
        answers |= zip(group, of_blocks, strict=True)
    return answers


def _kind(block: Block) -> object:
    """Equal for blocks that differ in their models and in values of their axes alone."""
    axes = [axis.name for axis in block.grid.axes]
    traces = [trace.name for trace in block.traces]
    parted = [block.platform.name, block.platform.part_columns]
    settings = [block.sets, block.open_knobs, block.method, block.slo, block.seed]
    return repr([block.system.name, parted, axes, traces, settings])


def _ask_group(group: Sequence[Block], numbers: Mesh) -> list[BlockAnswer]:
    """Ask blocks of one kind as one block of all their points."""
    first = group[0]
    if len(group) == 1:
        return [ask(first, numbers)]
    parts = list({id(part): part for block in group for part in block.parts}.values())
    places = {id(part): place for place, part in enumerate(parts)}
    points: dict[str, list[Numbers]] = {}
    for block in group:
        for axis, values in block.grid.mesh(block.grid.whole).items():
            own = np.broadcast_to(values, block.grid.shape).ravel()
            if axis == "model":
                own = np.array([places[id(block.parts[int(at)])] for at in own], float)
            points.setdefault(axis, []).append(own)
    mesh = {axis: np.concatenate(values) for axis, values in points.items()}
    together = ask(replace(first, parts=tuple(parts)), numbers, mesh)
    ends = np.cumsum([block.grid.size for block in group]).tolist()
    starts = [0, *ends[:-1]]
    return [
        replace(together, start=start, stop=stop)
        for start, stop in zip(starts, ends, strict=True)
    ]


@cache
def estimate_of(question: WordedStudy) -> Estimate:
    """Answer of one system, where a check needs more than columns: traffic, leaves, busy time.

    Raises:
        InputError: the question refers to something that does not exist.
    """
    (block,) = blocks_of(question)
    return block.resolved(block.grid.whole).estimate


@cache
def model_on(platform: str, name: str) -> tuple[Machine, LLM]:
    """A platform, and a model at the widths of its elements."""
    hw = load_platform(platform).machine()
    return hw, llm_from_part(load_llm(name), hw["precision"])


# --- fitted numbers -------------------------------------------------------------------------------


def fitted_of(platform: Platform) -> dict[str, Quantity]:
    """Numbers of a platform that are fitted, or have the value of one that is, by `role.key`."""
    return {
        address: number
        for address, number in platform.numbers.items()
        if (_key(address), number.si) in _fitted_values()
    }


@cache
def _fitted_values() -> set[tuple[str, float]]:
    """Keys and values of all fitted numbers of the catalogue [SI]."""
    values = set()
    for name in names("platform"):
        for address, number in load_platform(name).numbers.items():
            if number.kind == "fitted":
                values.add((_key(address), number.si))
    return values


def _key(address: str) -> str:
    return address.partition(".")[2]


# --- numbers by name ------------------------------------------------------------------------------

OF_MODELS: Mapping[str, Callable[[LLM], Real]] = {
    "parameters": lambda llm: llm.parameters,
    "block_parameters": lambda llm: llm.layers * llm.layer_parameters(llm.experts),
    "weight_bytes": lambda llm: llm.weight_bytes,
    "kv_bytes": lambda llm: llm.layers * llm.kv_bytes(1, 1),
    "x_bytes": lambda llm: llm.layers * llm.x_bytes(1, 1),
    "rebuild_flops": lambda llm: llm.kv_from_x_flops(1, 1),
    "head_bytes": lambda llm: llm.head_size * llm.kv_width,
}
"""Numbers that follow from a model's shape at 16 bit; bytes of KV and X, and FLOPs to rebuild K
and V, are of a token [1, B, FLOP]."""
_HILOS_BED = "hilos-a100"
"""A platform that stores every element in 16 bits."""
_OPERATORS: Mapping[type[ast.operator], Callable[[Real, Real], Real]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def quantity_at(address: str) -> Quantity:
    """A number `NAME:ROLE.KEY` of a platform, or `NAME:KEY` of a part, a trace or a model.

    Raises:
        InputError: nothing has that address.
    """
    name, _, key = address.partition(":")
    if name in names("platform"):
        role, _, key = key.partition(".")
        roles = load_platform(name).roles
        check_known("part", [role], roles, name)
        numbers = roles[role].numbers
    elif name in names("trace"):
        numbers = load_part(name, "trace").numbers
    else:
        numbers = (load_part if name in names("part") else load_llm)(name).numbers
    check_known("number", [key], numbers, name)
    return numbers[key]


def number_at(address: str) -> Real:
    """A number by its address [SI], one of `OF_MODELS`, or what a claim states: `stated:ID`.

    Raises:
        InputError: nothing has that address.
    """
    name, _, key = address.partition(":")
    if name == "stated":
        return claimed_value(key)
    if key in OF_MODELS:
        _, llm = model_on(_HILOS_BED, name)
        return OF_MODELS[key](llm)
    return quantity_at(address).si


def claimed_value(claim: str) -> float:
    """Value that a claim of some paper states, in its unit; the lower end of a range.

    Raises:
        InputError: no such claim.
    """
    check_known("claim", [claim], _stated())
    return float(_stated()[claim])


@cache
def _stated() -> dict[str, str]:
    """Value that each claim states; the lower end of a range."""
    return {known.id: known.low for paper in papers() for known in load(paper)}


def number_or_size(word: str) -> Real:
    """A number `0.5`, a size `16k`, or a number by its address.

    Raises:
        InputError: none of these.
    """
    if ":" in word:
        return number_at(word)
    try:
        return float(word)
    except ValueError:
        return size(word, "a number of a claim")


def arithmetic(text: str, value_of: Callable[[str], Any] = number_or_size) -> Any:
    """Evaluate words joined by + - * / ** and parentheses, all apart by blanks.

    Args:
        text: such as `opt-66b:x_bytes / opt-66b:kv_bytes`.
        value_of: what a word stands for.

    Raises:
        InputError: a word or an expression that cannot be read.

    >>> arithmetic("100 * ( 1 - 1 / 4 )")
    75.0
    """
    values: list[Any] = []
    words = []
    for word in text.split():
        if word in ("+", "-", "*", "/", "**", "(", ")"):
            words.append(word)
        else:
            # names hold - and /, so each word becomes a name of its own before Python reads them
            words.append(f"v{len(values)}")
            values.append(value_of(word))

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Name):
            return values[int(node.id[1:])]
        raise InputError(f"{text!r} is no arithmetic; join words by + - * / **")

    try:
        return value(ast.parse(" ".join(words), mode="eval").body)
    except SyntaxError:
        raise InputError(f"{text!r} is no arithmetic; join words by + - * / **") from None
