"""One server that keeps KV caches: bytes of a prefix, and each way that brings it back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.reuse.fetch import both
from nearkv.costmodel.mechanisms.reuse.tiers import TIERS, Place, Tier, tier
from nearkv.costmodel.mechanisms.serving.parallel import copies
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import gpu
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.machine import Machine
from nearkv.hardware.platform import Platform
from nearkv.sweeps.evaluate.probe import Probe
from nearkv.sweeps.explore.lines import searched
from nearkv.sweeps.study.block_traces import BLOCK_TOKENS
from nearkv.sweeps.study.grid import scalar
from nearkv.sweeps.study.sizes import number
from nearkv.sweeps.study.study import Numbers, Study, one_point

PREFIX_LENGTHS = 129
"""Prompts at which the system is asked; between them its seconds are interpolated."""
QUERY_WIDTHS = 2.0
"""Vectors of the width of the heads that attention near a tier sends: the query, and its answer."""


@dataclass(frozen=True)
class Node:
    """A server: its GPUs, and what they run.

    Attributes:
        hw, llm: scalars of one design point.
        platform: where sizes of tiers are read.
        probe: asks the system about prompts of any length.
        block: tokens of a block.
        staged: whether blocks from beyond the server's memory pass through host DRAM.
    """

    hw: Machine
    llm: LLM
    platform: Platform = field(repr=False)
    probe: Probe = field(repr=False)
    block: int = BLOCK_TOKENS
    staged: bool = False

    @cached_property
    def curve(self) -> tuple[Numbers, Numbers]:
        """Lengths of prompts that fit, and the seconds that one alone takes.

        Raises:
            InputError: not even the shortest one fits.
        """
        longest = scalar(self.llm.longest)
        lengths = np.unique(np.round(np.geomspace(1, longest, PREFIX_LENGTHS)))
        same = np.zeros(len(lengths), np.intp)
        answer = self.probe.answer(same, {"context_tok": lengths})
        estimate = answer.estimate
        seconds = np.broadcast_to(estimate.prefill.seconds, lengths.shape)
        fits = np.broadcast_to(estimate.fits.ok, lengths.shape)
        if not fits[0]:
            short = np.broadcast_to(estimate.fits.short_bytes, lengths.shape)[0] / 1e9
            lacks = f"lacks {short:,.1f} GB for this model"
            raise InputError(
                f"platform {self.hw.platform!r}: {lacks}; add GPUs, or take another platform"
            )
        return lengths[fits], np.asarray(seconds, float)[fits]

    @property
    def longest(self) -> float:
        """Tokens of the longest prompt that the model takes [1]."""
        return float(self.curve[0][-1])

    def prefill(self, tokens: Real) -> Numbers:
        """Seconds that a prompt takes which nothing is known of [s]."""
        lengths, seconds = self.curve
        return np.asarray(np.interp(tokens, lengths, seconds))

    def compute(self, tokens: Real) -> Numbers:
        """Seconds that a prompt takes less where its first tokens are not computed [s].

        A pass over the weights is made for the rest of the prompt in either case.
        """
        return self.prefill(np.maximum(tokens, 1.0)) - self.prefill(1.0)

    @cached_property
    def token_bytes(self) -> float:
        """KV of one more token far inside a prompt, on all GPUs that keep it [B].

        Raises:
            InputError: there is none.
        """
        last = self.longest
        grown = scalar(self.kv_bytes(last) - self.kv_bytes(last / 2))
        if not grown:
            keeps = "every layer keeps the KV of a window alone, so blocks of a prefix are not kept"
            raise InputError(f"--model: {keeps}; choose a model with full attention")
        return grown / (last / 2)

    def kv_bytes(self, tokens: Real) -> Real:
        """KV of a prefix on all GPUs that keep it [B]."""
        return kv_bytes(self.llm, tokens, self.hw.gpu.count)

    def tier(self, text: str) -> Tier:
        """A tier as it is named: `dram=512GB`, or `ssd=8x3.84TB`.

        Raises:
            InputError: it is written differently, or the platform has no such memory.
        """
        name, equals, size = (part.strip() for part in text.partition("="))
        if not equals and name in TIERS:
            raise InputError(f"--tier {text!r}: write it as dram=512GB or ssd=8x3.84TB")
        medium, key = self.place(name).medium, TIERS[name].capacity
        where, parts = f"--tier {name}", scalar(self.hw[medium].count)
        count, times, each = size.rpartition("x")
        if times and medium in ("host", "gpu"):
            raise InputError(f"--tier {text!r}: state all memory of a node, as dram=512GB")
        capacity = number(self.platform.key(f"{medium}.{key}"))(each, where)
        if times:
            parts = number(self.platform.key(f"{medium}.count"))(count, where)
            capacity = parts * capacity
        if not capacity:
            raise InputError(
                f"--tier {text!r}: must hold something; leave out an empty tier"
            )
        if name == "hbm":
            self._check_beside_weights(text, capacity)
        return self.sized(name, capacity, parts)

    def sized(self, name: str, capacity: Real, parts: Real) -> Tier:
        """A tier of a capacity [B] in so many parts."""
        hw = self.hw.with_values({f"{TIERS[name].medium}.count": parts})
        built = tier(name, hw, self.block * self.token_bytes, self.staged)
        # larger drives bear as many drive writes a day
        endurance = np.maximum(capacity, 1.0) / built.capacity * built.endurance
        return replace(built, capacity=capacity, endurance=endurance)

    def place(self, name: str) -> Place:
        """Where the blocks of a tier lie.

        Raises:
            InputError: there is no such tier, or the platform has no such memory.
        """
        check_known("tier", [name], TIERS, "--tier")
        place = TIERS[name]
        for role in (place.medium, *place.links):
            if role not in self.hw.roles:
                has_none = f"--tier {name}: platform {self.hw.platform!r} has no {role}"
                raise InputError(
                    f"{has_none}; choose a platform that has one, as h200-node"
                )
        return place

    def _check_beside_weights(self, text: str, size: float) -> None:
        """Refuse blocks that do not fit beside the weights.

        Raises:
            InputError: they do not.
        """
        if size > self.free:
            left = f"the weights leave {self.free / 1e9:,.0f} GB of the GPUs' memory"
            raise InputError(f"--tier {text!r}: {left}; state less")

    @property
    def free(self) -> float:
        """What the weights leave of the GPUs' memory [B]."""
        return max(scalar(gpu(self.hw).memory - self.llm.weight_bytes), 0.0)

    def load(self, tier: Tier, tokens: Real) -> Real:
        """Seconds to bring the KV of a prefix to the GPUs [s]."""
        return tier.load(self.kv_bytes(tokens)).seconds

    def restore(self, tier: Tier, tokens: Real) -> Real:
        """Seconds to bring X of a prefix and rebuild K and V from it [s]: HCache, EuroSys 2025.

        Not a number where a layer keeps a state, which X of the prefix does not bring back.
        """
        if scalar(self.llm.all_state_bytes(1.0)):
            return np.nan
        flops = self.llm.sum_over_layers(
            lambda layer_type: layer_type.kv_from_x_flops(1.0, tokens)
        )
        rebuild = gpu(self.hw).run(flops).seconds
        x = self.llm.sum_over_layers(lambda layer_type: layer_type.x_bytes(1.0, tokens))
        return np.maximum(tier.load(x).seconds, rebuild)

    def attend_near(self, tier: Tier, tokens: Real, queries: Real = 1.0) -> Real:
        """Seconds that later tokens attend to a prefix beside the tier in all layers [s].

        Queries go out, partial sums come back, KV stays: t0 + q bytes / B + KV / B_near, once a
        layer (arXiv 2606.01502; HILOS moves the query alike). Each query reads the KV. Not a number
        where the tier has nothing that computes.
        """
        queries = np.maximum(queries, 1.0)
        if tier.attend is None:
            return np.nan

        def sent(layer_type: LLM) -> Real:
            width = layer_type.heads * layer_type.head_size
            return queries * QUERY_WIDTHS * width * layer_type.activation_width

        there_and_back = tier.load(self.llm.sum_over_layers(sent)).seconds
        turns = (self.llm.layers - 1) * tier.latency
        return there_and_back + turns + tier.attend(queries * self.kv_bytes(tokens)).seconds

    def ways(
        self, tier: Tier, tokens: Real, before: Real = 0.0, queries: Real = 1.0
    ) -> dict[str, Real]:
        """Seconds that tokens of a prefix take by each way; not a number where there is none [s].

        Args:
            tokens, before: of the prefix in the tier, and ahead of them.
            queries: tokens after the prefix, which attend to it.
        """
        base = self.compute(before)

        def computed(some: Real) -> Real:
            return self.compute(before + some) - base

        return {
            "load": self.load(tier, tokens),
            "recompute": computed(tokens),
            "both": both(computed, lambda some: self.load(tier, some), tokens),
            "restore_x": self.restore(tier, tokens),
            "attend_near": self.attend_near(tier, tokens, queries),
        }

    def fetch(self, tier: Tier, tokens: Real, before: Real, queries: Real) -> Real:
        """Seconds by the best of `ways`; none where there are no tokens [s]."""
        ways = self.ways(tier, tokens, before, queries).values()
        best = np.fmin.reduce(np.broadcast_arrays(*ways))
        return np.where(np.greater(tokens, 0), best, 0.0)


def kv_bytes(llm: LLM, tokens: Real, gpus: Real) -> Real:
    """KV of a prefix, copied where heads are fewer than the GPUs that share them [B].

    Args:
        tokens: of the prefix [1].
        gpus: tensor-parallel degree [1].
    """

    def of_layer(layer_type: LLM) -> Real:
        cache = layer_type.kv_bytes(1.0, tokens) + layer_type.state_bytes(1.0)
        return copies(layer_type, gpus) * cache

    return llm.sum_over_layers(of_layer)


def node_of(study: Study, block: int, staged: bool) -> Node:
    """One server of a study of one design point.

    Raises:
        InputError: the study holds several points, or cannot be evaluated.
    """
    hw, llm = one_point(study)
    points = searched(study)[0]
    return Node(hw, llm, points.platform, Probe(points), block, staged)
