"""One server that keeps KV caches: bytes of a prefix, and each way that brings it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.mechanisms.kv_tiers import (
    TIERS,
    WHOLE_ROLES,
    Place,
    Tier,
    both,
    tier_of,
)
from nearkv.costmodel.mechanisms.serving.parallel import copies
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import Resolved, resolve_knobs
from nearkv.sweeps.explore.lines import searched
from nearkv.sweeps.study.block_traces import BLOCK_TOKENS
from nearkv.sweeps.study.grid import Block, scalar
from nearkv.sweeps.study.sizes import number
from nearkv.sweeps.study.study import Study, one_point

PREFIX_LENGTHS = 129
"""Prompts at which the system is asked; between them its seconds are interpolated."""
QUERY_WIDTHS = 2.0
"""Vectors of the width of the heads that attention near a tier sends: the query, and its answer."""
COPIES = ("once", "per-gpu")
"""Copies that tiers behind HBM keep of what several GPUs hold alike."""
SNAPSHOTS = ("prompt", "block")
"""Places of kept recurrent states: at the end of each prompt, or of each block."""
STORE_KNOBS = {"copies": COPIES, "snapshots": SNAPSHOTS}
"""Knobs of the store, and their values, the first of which is the default."""
PER_GPU = ("gpu_link.count", "fabric.count", "host.bandwidth")
"""Numbers of a server that follow the number of its GPUs unless they are stated."""


@dataclass(frozen=True)
class Node:
    """A server: its GPUs, and what they run.

    Attributes:
        hw, llm: scalars of one design point; links, adapters and DRAM's rate are those of its GPUs.
        points: the design point, where the system is asked about prompts of any length.
        block: tokens of a block.
        staged: whether blocks from beyond the server's memory pass through host DRAM.
        copies, snapshots: of `COPIES` and `SNAPSHOTS`.
    """

    hw: Machine
    llm: LLM
    points: Block = field(repr=False)
    block: int = BLOCK_TOKENS
    staged: bool = False
    copies: str = COPIES[0]
    snapshots: str = SNAPSHOTS[0]

    # --- prompts ----------------------------------------------------------------------------------

    @cached_property
    def _mesh(self) -> dict[str, Numbers]:
        """The axes of the design point."""
        grid = self.points.grid
        return {name: np.ravel(value) for name, value in grid.mesh(grid.whole).items()}

    def _resolved(self, lengths: Numbers) -> Resolved:
        """One prompt of each length alone, with the system's knobs solved for each."""
        hw, llm, work, settings = self.points.at({**self._mesh, "context_tok": lengths})
        return resolve_knobs(self.points.system, hw, llm, work, settings)

    @cached_property
    def _lengths(self) -> Numbers:
        """Lengths of prompts that the model takes and that fit.

        Raises:
            InputError: not even the shortest one fits.
        """
        lengths = np.unique(
            np.round(np.geomspace(1, scalar(self.llm.longest), PREFIX_LENGTHS))
        )
        checked = self._resolved(lengths).estimate.fits
        fits = np.broadcast_to(checked.ok, lengths.shape)
        if not fits[0]:
            short = np.broadcast_to(checked.short_bytes, lengths.shape)[0] / 1e9
            why = checked.reasons[int(np.broadcast_to(checked.reason, lengths.shape)[0])]
            lacks = f"lacks {short:,.1f} GB for this model; add GPUs" if short else why
            raise InputError(
                f"platform {self.hw.platform!r}: {lacks}, or take another platform or knobs"
            )
        return lengths[fits]

    @property
    def longest(self) -> float:
        """Tokens of the longest prompt that the model takes [1]."""
        return float(self._lengths[-1])

    @cached_property
    def knobs(self) -> dict[str, float]:
        """Knobs of the system, solved for the longest prompt: one engine serves all lengths."""
        solved = self._resolved(self._lengths[-1:]).knobs
        return {name: scalar(value) for name, value in solved.items()}

    @cached_property
    def alone(self) -> Estimate:
        """Prompts of all lengths, each alone."""
        hw, llm, work, _ = self.points.at({**self._mesh, "context_tok": self._lengths})
        return self.points.system(hw, llm, work, self.knobs)

    @cached_property
    def _prefill(self) -> Numbers:
        """Seconds of prompts of all lengths, none shorter than a shorter prompt's [s]."""
        seconds = np.broadcast_to(self.alone.prefill.seconds, self._lengths.shape)
        return np.maximum.accumulate(seconds)

    def prefill(self, tokens: Real) -> Numbers:
        """Seconds that a prompt takes which nothing is known of [s]."""
        return np.asarray(np.interp(tokens, self._lengths, self._prefill))

    def compute(self, tokens: Real) -> Numbers:
        """Seconds that a prompt takes less where its first tokens are not computed [s].

        A pass over the weights is made for the rest of the prompt in either case.
        """
        return self.prefill(np.maximum(tokens, 1.0)) - self.prefill(1.0)

    def serve(self, work: Workload) -> Estimate:
        """Requests that arrive, decoding beside prompts.

        Raises:
            InputError: the system serves no queue.
        """
        if self.alone.serving is None:
            name = self.points.system.name
            raise InputError(f"--system {name}: serves one batch at a time; take gpu")
        hw, llm, _, _ = self.points.at(
            {**self._mesh, "context_tok": np.array([self.longest])}
        )
        return self.points.system(hw, llm, work, self.knobs)

    def equivalent(self, seconds: Numbers) -> Numbers:
        """Tokens of prompts that take as long where nothing of them is known [1]."""
        return np.interp(seconds, self._prefill, self._lengths)

    @cached_property
    def heads_over(self) -> float:
        """GPUs that share the heads of a prompt, each with a part of its cache or a copy [1]."""
        if self.knobs.get("attention"):
            return 1.0
        return self.knobs.get("tp", scalar(self.hw.gpu.count))

    @cached_property
    def holders(self) -> float:
        """GPUs that hold the cache of one prompt [1]."""
        return self.heads_over * self.knobs.get("pp", 1.0)

    # --- bytes ------------------------------------------------------------------------------------

    def kv_bytes(self, tokens: Real, tier: str = "") -> Real:
        """KV of a prefix with one state, as a tier keeps it, each byte once without a tier [B].

        GPUs that share the heads of a prompt each hold a latent, or heads that are fewer than they;
        tiers behind HBM hold these once, or as often as `copies` says.
        """
        return kv_bytes(self.llm, tokens, self._copied_over(tier))

    def _copied_over(self, tier: str) -> float:
        """GPUs of which each keeps a part in a tier, or a copy [1]."""
        if tier == "hbm":
            return self.heads_over
        return scalar(self.hw.gpu.count) if self.copies == "per-gpu" and tier else 1.0

    def token_bytes(self, tier: str = "") -> float:
        """KV of one more token far inside a prompt, as a tier keeps it [B].

        Raises:
            InputError: there is none.
        """
        last = self.longest
        grown = scalar(self.kv_bytes(last, tier) - self.kv_bytes(last / 2, tier))
        if not grown:
            keeps = "every layer keeps the KV of a window alone, so blocks of a prefix are not kept"
            raise InputError(f"--model: {keeps}; choose a model with full attention")
        return grown / (last / 2)

    @cached_property
    def state_bytes(self) -> float:
        """Recurrent states of a sequence in all layers [B]."""
        return scalar(self.llm.all_state_bytes(1.0))

    def block_bytes(self, tier: str = "") -> float:
        """A block as a tier keeps it, with a snapshot where each block has one [B]."""
        in_each = self.state_bytes if self.snapshots == "block" else 0.0
        return self.block * self.token_bytes(tier) + in_each

    @property
    def snapshot(self) -> float:
        """A snapshot that is kept at the end of each prompt; 0 where none is [blocks]."""
        at_end = self.state_bytes if self.snapshots == "prompt" else 0.0
        return at_end / self.block_bytes()

    def kept_bytes(self, tokens: Real, tier: str) -> Real:
        """A prefix as a tier keeps it, with all snapshots in it [B]."""
        more = np.ceil(tokens / self.block) - 1 if self.snapshots == "block" else 0.0
        return self.kv_bytes(tokens, tier) + more * self.state_bytes

    # --- tiers ------------------------------------------------------------------------------------

    def tier(self, text: str) -> Tier:
        """A tier as it is named: `dram=512GB`, `ssd=8x3.84TB`, or a name for all that a node has.

        A size alone lies on as many parts of the platform as hold it.

        Raises:
            InputError: it is written differently, or the platform has no such memory, or less.
        """
        name, equals, size = (part.strip() for part in text.partition("="))
        place = self.place_of(name)
        medium, where = place.medium, f"--tier {name}"
        each, count = self.part(name)
        if not equals:
            return self.sized(name, each * count, count)
        times, x, one = size.rpartition("x")
        if x and medium in WHOLE_ROLES:
            raise InputError(f"--tier {text!r}: state all memory of a node, as dram=512GB")
        capacity = number(self.points.platform.key(f"{medium}.{place.capacity}"))(
            one, where
        )
        if not capacity:
            raise InputError(
                f"--tier {text!r} must hold something; leave out an empty tier"
            )
        parts = count if medium in WHOLE_ROLES else np.ceil(capacity / each)
        if x:
            parts = number(self.points.platform.key(f"{medium}.count"))(times, where)
            capacity = parts * capacity
        if not place.is_shared and (parts > count or (not x and capacity > each * count)):
            has = f"a node of {self.hw.platform!r} has {each * count / 1e9:,.0f} GB"
            of_parts = "" if medium in WHOLE_ROLES else f" in {count:.0f}"
            raise InputError(
                f"--tier {text!r}: {has}{of_parts}; state less, or set the part"
            )
        return self.sized(name, capacity, parts)

    def part(self, name: str) -> tuple[float, float]:
        """Capacity of a part of a tier [B], and how many a node has."""
        place = self.place_of(name)
        part = self.hw[place.medium]
        if name == "hbm":
            return self.free, 1.0
        count = scalar(part.count)
        held = scalar(part[place.capacity])
        return (held * count, 1.0) if place.medium in WHOLE_ROLES else (held, count)

    def sized(self, name: str, capacity: float, parts: float) -> Tier:
        """A tier of a capacity [B] in so many parts."""
        medium = TIERS[name].medium
        counts = {} if medium in WHOLE_ROLES else {f"{medium}.count": parts}
        shared = min(self.holders / scalar(self.hw.gpu.count), 1.0)
        built = tier_of(
            name, self.hw.with_values(counts), self.block_bytes(name), self.staged, shared
        )
        # larger drives bear as many drive writes a day
        endurance = max(capacity, 1.0) / built.capacity * built.endurance
        return replace(built, capacity=capacity, endurance=endurance)

    def place_of(self, name: str) -> Place:
        """The memory that holds the blocks of a tier.

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

    @cached_property
    def free(self) -> float:
        """Bytes that the serving model leaves of the GPUs' memory for caches [B]."""
        serving = self.alone.serving
        if serving is None:
            return max(scalar(gpu(self.hw).memory - self.llm.weight_bytes), 0.0)
        tokens = np.broadcast_to(serving.capacity, self._lengths.shape)[-1]
        # replicas without a prompt have as much as those at work
        at_work = scalar(serving.replicas) * self.holders
        beside = max(scalar(self.hw.gpu.count) / at_work, 1.0)
        return float(tokens) * self.token_bytes("hbm") * beside

    # --- ways back of a prefix --------------------------------------------------------------------

    def load(self, tier: Tier, tokens: Real) -> Real:
        """Seconds to bring the KV of a prefix to the GPUs [s]."""
        return tier.load(self.kv_bytes(tokens, tier.name)).seconds

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
    """KV and state of a prefix, copied where heads are fewer than the GPUs that share them [B].

    Args:
        llm: the model.
        tokens: of the prefix [1].
        gpus: that share the heads [1].
    """

    def of_layer(layer_type: LLM) -> Real:
        cache = layer_type.kv_bytes(1.0, tokens) + layer_type.state_bytes(1.0)
        return copies(layer_type, gpus) * cache

    return llm.sum_over_layers(of_layer)


def node_of(
    study: Study, block: int, staged: bool = False, store: Mapping[str, str] | None = None
) -> Node:
    """One server of a study of one design point.

    Args:
        study: of the system that computes the prompts.
        block: tokens of a block.
        staged: whether blocks from beyond the server's memory pass through host DRAM.
        store: values of `STORE_KNOBS`.

    Raises:
        InputError: the study holds several points, or cannot be evaluated.
    """
    for name, value in (store or {}).items():
        check_known("value", [value], STORE_KNOBS[name], f"--knob {name}")
    hw, llm = one_point(study)
    points = searched(study)[0]
    standard = points.platform.machine()
    per_gpu = scalar(hw.gpu.count / standard.gpu.count) if "gpu" in hw.roles else 1.0
    follows: dict[str, Real] = {}
    for address in PER_GPU:
        role, _, key = address.partition(".")
        if role in hw.roles and address not in study.sets:
            follows[address] = hw[role][key] * per_gpu
    return Node(hw.with_values(follows), llm, points, block, staged, **(store or {}))
