"""One server that keeps KV caches: seconds of prompts, bytes of a prefix, tiers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.mechanisms.kv_tiers import (
    TIERS,
    WHOLE_ROLES,
    Place,
    Tier,
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
from nearkv.sweeps.study.block_traces import BLOCK_TOKENS
from nearkv.sweeps.study.grid import Block, Inputs, scalar
from nearkv.sweeps.study.sizes import number
from nearkv.sweeps.study.study import Study, blocks, one_point

PREFIX_LENGTHS = 129
"""Prompts at which the system is asked; between them its seconds are interpolated."""
COPIES = ("once", "per-gpu")
"""Copies that tiers behind HBM keep of what several GPUs hold alike."""
SNAPSHOTS = ("prompt", "block")
"""Places of kept recurrent states: at the end of each prompt, or of each block."""
STORE_KNOBS = {"copies": COPIES, "snapshots": SNAPSHOTS}
"""Knobs of the store, and their values, the first of which is the default."""
PER_GPU = ("gpu_link.count", "fabric.count", "host.bandwidth")
"""Numbers of a server that follow the number of its GPUs unless they are stated."""


@dataclass(frozen=True)
class Engine:
    """A system that computes prompts on the GPUs of a server.

    Attributes:
        hw, llm: scalars of one design point; links, adapters and DRAM's rate are those of its GPUs.
        point: this design point, whose system is asked about prompts of any length.
    """

    hw: Machine
    llm: LLM
    point: Block = field(repr=False)

    def _inputs(self, lengths: Numbers) -> Inputs:
        """Arguments of the system for one prompt of each length."""
        grid = self.point.grid
        return self.point.at({**grid.mesh(grid.whole), "context_tok": lengths})

    def _resolved(self, lengths: Numbers) -> Resolved:
        """One prompt of each length alone, with the system's knobs solved for each."""
        return resolve_knobs(self.point.system, *self._inputs(lengths))

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
    def prompts(self) -> Estimate:
        """Prompts of all lengths, each alone."""
        hw, llm, work, _ = self._inputs(self._lengths)
        return self.point.system(hw, llm, work, self.knobs)

    @cached_property
    def _prefill(self) -> Numbers:
        """Seconds of prompts of all lengths, none shorter than a shorter prompt's [s]."""
        seconds = np.broadcast_to(self.prompts.prefill.seconds, self._lengths.shape)
        return np.maximum.accumulate(seconds)

    def prefill(self, tokens: Real) -> Numbers:
        """Seconds of a prompt of which nothing is cached; those of one token at least [s]."""
        return np.asarray(np.interp(tokens, self._lengths, self._prefill))

    def compute(self, tokens: Real) -> Numbers:
        """Seconds that a prompt takes less where its first tokens are not computed [s].

        A pass over the weights is made for the rest of the prompt in either case.
        """
        return self.prefill(tokens) - self.prefill(1.0)

    def serve(self, work: Workload) -> Estimate:
        """Requests that arrive, decoding beside prompts.

        Raises:
            InputError: the system serves no queue.
        """
        if self.prompts.serving is None:
            name = self.point.system.name
            raise InputError(f"--system {name}: serves one batch at a time; take gpu")
        hw, llm, _, _ = self._inputs(self._lengths[-1:])
        return self.point.system(hw, llm, work, self.knobs)

    def equivalent(self, seconds: Numbers) -> Numbers:
        """Tokens of prompts that take as long where nothing of them is cached [1]."""
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


@dataclass(frozen=True)
class Node(Engine):
    """A server, and what its tiers keep of prompts; attributes as those of `Engine`, and these.

    Attributes:
        block: tokens of a block.
        staged: whether blocks from beyond the server's memory pass through host DRAM.
        copies, snapshots: of `COPIES` and `SNAPSHOTS`.
    """

    block: int = BLOCK_TOKENS
    staged: bool = False
    copies: str = COPIES[0]
    snapshots: str = SNAPSHOTS[0]

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
        capacity = number(self.point.platform.key(f"{medium}.{place.capacity}"))(one, where)
        if not capacity:
            raise InputError(
                f"--tier {text!r} must hold something; leave out an empty tier"
            )
        parts = count if medium in WHOLE_ROLES else np.ceil(capacity / each)
        if x:
            parts = number(self.point.platform.key(f"{medium}.count"))(times, where)
            capacity = parts * capacity
        if not place.is_shared and (parts > count or (not x and capacity > each * count)):
            asked, held = (f"{room / 1e9:,.0f} GB" for room in (capacity, each * count))
            if medium not in WHOLE_ROLES:
                asked, held = f"{asked} in {parts:.0f}", f"{held} in {count:.0f}"
            has = f"a node of {self.hw.platform!r} has {held}"
            raise InputError(
                f"{where}: {asked} are asked, {has}; state less, or set the part"
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
        serving = self.prompts.serving
        if serving is None:
            return max(scalar(gpu(self.hw).memory - self.llm.weight_bytes), 0.0)
        tokens = np.broadcast_to(serving.capacity, self._lengths.shape)[-1]
        # replicas without a prompt have as much as those at work
        at_work = scalar(serving.replicas) * self.holders
        beside = max(scalar(self.hw.gpu.count) / at_work, 1.0)
        return float(tokens) * self.token_bytes("hbm") * beside


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


def node_of(study: Study, block: int, staged: bool = False, **store: str) -> Node:
    """One server of a study of one design point.

    Args:
        study: of the system that computes the prompts.
        block: tokens of a block.
        staged: whether blocks from beyond the server's memory pass through host DRAM.
        store: values of `STORE_KNOBS`.

    Raises:
        InputError: the study holds several points, or cannot be evaluated.
    """
    for name, value in store.items():
        check_known("value", [value], STORE_KNOBS[name], f"--knob {name}")
    hw, llm = one_point(study)
    (point,) = blocks(study)
    standard = point.platform.machine()
    per_gpu = scalar(hw.gpu.count / standard.gpu.count) if "gpu" in hw.roles else 1.0
    follows: dict[str, Real] = {}
    for address in PER_GPU:
        role, _, key = address.partition(".")
        if role in hw.roles and address not in study.sets:
            follows[address] = hw[role][key] * per_gpu
    return Node(hw.with_values(follows), llm, point, block, staged, **store)
