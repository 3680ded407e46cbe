"""Every system computes the logits of one token of each sequence in a step, no more and no less."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.systems import SYSTEMS, machine_of, middle, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import System
from nearkv.costmodel.model.workload import Workload

CHIPS = "gh-asymmetric"
"""Where chips count tiles and bytes, no FLOPs."""
NARROW = model("llama2-7b")
WORK = Workload(4.0, 2048.0, 16.0)


def amounts(system: System, llm: LLM, unit: str) -> Real:
    """Amounts that a step computes, or reads from memories [FLOP, B]."""
    step = system(machine_of(system), llm, WORK, middle(system)).step
    leaves = [(leaf, times) for _, leaf, times in step.leaves()]
    verb = {"FLOP": "run", "B": "read"}[unit]
    return sum(
        times * leaf.amount for leaf, times in leaves if (leaf.verb, leaf.unit) == (verb, unit)
    )


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_a_step_counts_the_output_head_once(name: str) -> None:
    """A model of decoder layers alone does not compute it: two FLOPs a weight and sequence."""
    system, decoders = SYSTEMS[name], replace(NARROW, vocab=0.0)
    unit = "B" if system.platform == CHIPS else "FLOP"
    of_head = amounts(system, NARROW, unit) - amounts(system, decoders, unit)
    if unit == "FLOP":
        assert of_head == pytest.approx(2 * WORK.batch * NARROW.head_parameters)
    else:
        logits = WORK.batch * NARROW.vocab * NARROW.activation_width
        inputs = WORK.batch * NARROW.hidden * NARROW.activation_width
        outputs = of_head - NARROW.head_bytes - logits
        assert inputs <= outputs <= 2 * inputs
