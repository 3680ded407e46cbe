"""Systems of one's own: read from files, and a file to start one from, with its test."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from keyword import iskeyword
from pathlib import Path

from nearkv.costmodel.model.plugins import Plugin
from nearkv.costmodel.model.registry import load_plugin, systems
from nearkv.hardware.errors import InputError
from nearkv.hardware.files import read_text

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_SYSTEM = '''\
"""{name}: a KV cache on drives, a share of it in GPU memory.

    nearkv compare flexgen-ssd {name} --plugin {module}.py --model opt-66b --context 16k,64k
    nearkv systems check {module}.py

b sequences, s tokens of context; amounts are bytes and FLOPs, times follow from them.
"""

from nearkv.modelling import (
    LLM, Estimate, Knob, Machine, Span, Workload, drives, fits, gpu, link, over_layers, overlap,
    stream, system,
)

ON_GPU = Knob("share of the KV cache in GPU memory", default=0.1)


@system(
    "{name}",
    platform="hilos-a100",  # where it runs unless --platform says otherwise
    owns=("gpu", "host", "ssd"),  # roles that are bought and powered
    knobs={{"on_gpu": ON_GPU}},
    attends=("full", "window", "chunk"),
)
def {function}(hw: Machine, llm: LLM, work: Workload, *, on_gpu: float) -> Estimate:
    """Read the KV cache from drives, beside the products of the GPU."""
    device, ssd, pcie = gpu(hw), drives(hw, "ssd"), link(hw, "gpu_link", "pcie")
    b, s = work.batch, work.context

    def decode(layer: LLM) -> Span:
        """One layer of one step: an overlap of what works at the same time."""
        kv = layer.kv_bytes(b, s)
        near = on_gpu * kv + layer.layer_weight_bytes(b)
        flops = layer.linear_flops(b) + layer.attention_flops(b, s)
        return overlap(
            # a leaf is an amount on a resource; a stream is one through a chain of them
            drives=stream((1 - on_gpu) * kv, "KV on drives", flash=ssd.read, link=pcie.inward),
            memory=device.read(near, "weights, KV on the GPU"),
            products=device.run(flops, "2 FLOPs a weight and token"),
        )

    def prefill(layer: LLM) -> Span:
        """One layer over all prompts, their KV cache on its way to the drives."""
        kv = layer.kv_bytes(b, work.prompt)
        flops = layer.linear_flops(b * work.prompt)
        flops = flops + layer.prefill_attention_flops(b, work.prompt)
        return overlap(
            drives=stream((1 - on_gpu) * kv, "KV to drives", link=pcie.outward, flash=ssd.write),
            products=device.run(flops, "2 FLOPs a weight and token"),
        )

    cache = llm.kv_cache_bytes(b, work.final)
    return Estimate(
        prefill=over_layers(llm, prefill),
        step=over_layers(llm, decode),
        fits=fits(  # memory = (bytes needed, bytes there)
            gpu=(llm.weight_bytes + on_gpu * cache, device.memory),
            ssd=((1 - on_gpu) * cache, ssd.capacity),
        ),
        work=work,
        batch_run=b,
    )
'''

_TEST = '''\
"""Tests of {name}: a step worked out by hand, and the contracts of every system."""

import nearkv
from nearkv.modelling import find_system, load_plugins, violations

load_plugins(["{module}.py"])


def test_a_step_lasts_as_long_as_its_cache_takes_over_the_link() -> None:
    """Llama2-13B: 40 layers of 40 heads of 128; K and V of 2 bytes; x16 of PCIe 4.0 at 0.8."""
    point = nearkv.estimate("{name}", "llama2-13b", batch=8, context=8192, output_tokens=2,
                            knobs={{"on_gpu": 0}})
    cache = 2 * 2 * 40 * 40 * 128 * 8 * (8192 + 1)
    assert abs(point["step_ms"] / (1e3 * cache / (0.8 * 31.5e9)) - 1) < 1e-6


def test_it_keeps_the_contracts_of_every_system() -> None:
    assert violations(find_system("{name}"), models=("llama2-7b", "llama2-13b")) == []
'''


def new_system(name: str) -> dict[str, str]:
    """Text of a system that works as it is, and of its test, by name of file.

    Raises:
        InputError: the name is not kebab-case, or a system has it.
    """
    if not _NAME.fullmatch(name):
        example = "small letters, digits and hyphens, as in my-system"
        raise InputError(f"systems new {name!r}: a name has {example}")
    if iskeyword(name) or name in sys.stdlib_module_names:
        taken = "is a word of Python, which a module cannot be named by"
        raise InputError(f"systems new {name!r}: {taken}; choose another name")
    if name in systems():
        raise InputError(f"systems new {name!r}: exists already; choose another name")
    module = name.replace("-", "_")
    words = {"name": name, "module": module, "function": module}
    return {
        f"{module}.py": _SYSTEM.format(**words),
        f"test_{module}.py": _TEST.format(**words),
    }


def load_plugins(files: Iterable[str]) -> None:
    """Run files that register systems; one that was run before and is as it was is left alone.

    Raises:
        InputError: a file cannot be read or run, takes a name that exists, or registers nothing;
            or two are one text.
    """
    plugins: dict[Plugin, str] = {}
    for file in files:
        plugin = read_plugin(file)
        if plugin in plugins:
            same = f"--plugin {plugins[plugin]} and --plugin {file} are one text"
            raise InputError(f"{same}; leave one out")
        plugins[plugin] = file
        load_plugin(plugin)


def read_plugin(file: str) -> Plugin:
    """Read a file of Python.

    Raises:
        InputError: it has another suffix, cannot be read, or is no text.
    """
    if not file.endswith(".py"):
        raise InputError(f"--plugin {file!r}: name a file of Python, as in my_system.py")
    try:
        return Plugin(file, read_text(Path(file), "plugin"))
    except ValueError:
        raise InputError(f"{file} is not a text in UTF-8; correct it there") from None
