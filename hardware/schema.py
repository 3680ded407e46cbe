"""Which numbers each kind of part has, and in which unit. Everything that reads, checks or overrides one asks here."""

import math
from dataclasses import dataclass

from nearkv.hardware.quantity import unit_of


@dataclass(frozen=True)
class Key:
    """One number of a part: the unit it must convert to and what it means."""

    unit: str
    what: str
    whole: bool = False
    optional: bool = False

    zero: bool = False
    most: float = math.inf
    only: tuple[float, ...] = ()
    """The values there are, in `unit`; any where empty."""
    column: str = ""
    """Unit that columns show it in; where empty, that of its dimension, as in `COLUMN_UNITS`."""

    @property
    def shown_in(self) -> str:
        """The unit that columns show it in."""
        return self.column or COLUMN_UNITS[self.unit]

    @property
    def suffix(self) -> str:
        """What names of its columns end in to say their unit; nothing where it has none."""
        return "" if self.shown_in == "1" else f"_{self.shown_in.lower().replace('/', '_')}"

    def shown(self, si: float) -> float:
        """A value in SI as columns show it: `8 GB/s` is 8, without the last digits that conversions cost."""
        return float(f"{si / unit_of(self.shown_in)[1]:.15g}")

    def fault(self, value: float) -> str:
        """What is wrong with a value in SI units; empty where nothing is.

        Prices, powers and delays may be zero; a size, a rate or a count of zero is no part at all.
        """
        if self.whole and value != int(value):
            return "must be a whole number"
        if not value and not (self.zero or self.unit in ("W", "USD", "s", "J")):
            return "must be more than zero"
        if self.only and not any(
            math.isclose(value, some * unit_of(self.unit)[1]) for some in self.only
        ):
            *others, last = (f"{some:g}" for some in self.only)
            return f"must be {', '.join(others)} or {last} {self.unit}"
        return f"must be at most {self.most:g}" if value > self.most else ""


COLUMN_UNITS = {
    "1": "1", "B": "GB", "B/s": "GB/s", "FLOP/s": "TFLOP/s", "s": "us", "W": "W", "USD": "USD",
    "bit": "bit", "T/s": "GT/s", "Hz": "GHz", "m2": "mm2",
}  # fmt: skip
"""Unit of a number -> unit that columns show it in."""

_POWER = {
    "power": Key("W", "power while working", optional=True),
    "idle_power": Key("W", "power while idle", optional=True),
    "price": Key("USD", "price of one", optional=True),
    "count": Key("1", "how many", whole=True, optional=True),
}
_DRIVE = {
    "capacity": Key("B", "usable capacity"),
    "read": Key("B/s", "sequential read rate"),
    "write": Key("B/s", "sequential write rate"),
    "page": Key("B", "smallest write that is not amplified", column="KiB"),
    "endurance": Key("B", "bytes that may be written over its life", optional=True),
    **_POWER,
}

DERATE = Key("1", "correction factor", most=1)
"""Every number of a platform's `derate` table: what is reached over what is printed."""

WIDTHS = (4, 8, 16, 32)
"""Bits of an element that formats have."""

PARTLESS = ("precision", "policy", "offload", "collective", "derate")
"""Roles of a platform that no part fills: they hold all their own numbers."""

KINDS: dict[str, dict[str, Key]] = {
    "gpu": {
        "flops": Key("FLOP/s", "dense 16-bit matrix rate"),
        "memory": Key("B", "device memory"),
        "bandwidth": Key("B/s", "device memory bandwidth"),
        "pim_bandwidth": Key(
            "B/s", "bandwidth inside the memory, for units at its banks", optional=True
        ),
        "launch": Key("s", "fixed time of the kernels of one layer", optional=True),
        "attention_launch": Key(
            "s", "fixed time of the attention kernels of one layer beside it", optional=True
        ),
        **_POWER,
    },
    "dimm-pim": {
        "capacity": Key("B", "capacity of one DIMM"),
        "channels": Key("1", "memory channels the DIMMs are spread over", whole=True),
        "ranksets": Key("1", "ranks a channel; one rank of every channel is a rankset", whole=True),
        "transfers": Key("T/s", "transfers a second on a channel"),
        "bus": Key("bit", "width of a channel, and of what a bank delivers a burst and transfer"),
        "chips": Key("1", "DRAM chips a rank", whole=True),
        "bank_groups": Key("1", "bank groups a rank", whole=True),
        "banks": Key("1", "banks a bank group", whole=True),
        "row": Key("B", "row of one bank, over all chips of a rank", column="KiB"),
        "burst": Key("1", "clock cycles of one burst, BL", whole=True),
        "ccd_l": Key("1", "clock cycles between bursts of one bank, CCD_L", whole=True),
        "rrd_s": Key("1", "clock cycles between activations, RRD_S", whole=True),
        "rcd": Key("1", "clock cycles from activation to read, RCD", whole=True),
        "rp": Key("1", "clock cycles of a precharge, RP", whole=True),
        "refresh": Key("s", "time of one refresh, RFC"),
        "refresh_interval": Key("s", "time between refreshes, REFI"),
        "relayout_area": Key("m2", "re-layout unit of a rank", optional=True),
        "adder_area": Key("m2", "adder unit of a rank", optional=True),
        "softmax_area": Key("m2", "softmax unit of a rank", optional=True),
        "bank_area": Key("m2", "processing unit of one bank of one chip", optional=True),
        "buffer_area": Key("m2", "buffer chip of a DIMM", optional=True),
        "relayout_power": Key("W", "re-layout unit of a rank", optional=True),
        "adder_power": Key("W", "adder unit of a rank", optional=True),
        "softmax_power": Key("W", "softmax unit of a rank", optional=True),
        "bank_power": Key("W", "processing unit of one bank of one chip", optional=True),
        **_POWER,
    },
    "host": {
        "memory": Key("B", "DRAM of all sockets"),
        "bandwidth": Key("B/s", "DRAM bandwidth of all sockets"),
        "kv_memory": Key("B", "DRAM a KV cache may take", optional=True),
        "file_read": Key("B/s", "rate of the kernel's buffered file path", optional=True),
        **_POWER,
    },
    "drive": _DRIVE,
    "csd": {
        **_DRIVE,
        "p2p_read": Key("B/s", "flash to accelerator memory, inside the device"),
        "memory": Key("B", "accelerator memory"),
        "memory_bandwidth": Key("B/s", "accelerator memory bandwidth"),
        "kernel_g1": Key("FLOP/s", "attention kernel built for one query a KV head"),
        "kernel_g4": Key(
            "FLOP/s", "attention kernel built for four queries a KV head", optional=True
        ),
        "kernel_g5": Key(
            "FLOP/s", "attention kernel built for five queries a KV head", optional=True
        ),
        "kernel_power_g1": Key("W", "accelerator power of that kernel", optional=True),
        "kernel_power_g4": Key("W", "accelerator power of that kernel", optional=True),
        "kernel_power_g5": Key("W", "accelerator power of that kernel", optional=True),
        "kernel_tiled": Key(
            "FLOP/s", "multiply-add units of a tiled attention kernel", optional=True
        ),
        "kernel_scores": Key(
            "FLOP/s", "multiply-add units of a kernel that only scores keys", optional=True
        ),
        "launch": Key("s", "starting the kernel and waking the host, once a layer", optional=True),
        "commit": Key("s", "one synchronous sub-page write", optional=True),
        "dma": Key(
            "s", "host software time of one buffer transfer to the accelerator", optional=True
        ),
    },
    "link": {
        "bandwidth": Key("B/s", "raw bandwidth in one direction"),
        "latency": Key("s", "fixed time of one collective", optional=True),
        **_POWER,
    },
    "chassis": {key: _POWER[key] for key in ("idle_power", "price", "count")},
    "memory": {
        "memory": Key("B", "capacity of one module"),
        "bandwidth": Key("B/s", "bandwidth of one module"),
        "latency": Key("s", "one access"),
        **_POWER,
    },
    "accelerator": {
        "cores": Key("1", "cores of a chip", whole=True),
        "rows": Key("1", "rows of a core's systolic array", whole=True),
        "columns": Key("1", "columns of a core's systolic array", whole=True),
        "vector_arrays": Key("1", "1-D arrays of a core's matrix-vector unit", whole=True),
        "vector_lanes": Key("1", "multipliers of one 1-D array", whole=True),
        "frequency": Key("Hz", "core clock"),
        "scratchpad": Key("B", "one of a core's two scratchpad buffers", column="KiB"),
        "tlb_miss": Key("s", "one page-table access after a TLB miss"),
        "tlb_entries": Key("1", "TLB entries of a chip", whole=True),
        "page": Key("B", "page of the virtual memory", column="KiB"),
        "page_entry": Key("B", "one entry of the flat page table", column="B"),
        **_POWER,
    },
    "collective": {"all_reduce": Key("s", "all-reduces of one layer between memory devices")},
    "precision": {
        "weight": Key("bit", "width of one weight", only=WIDTHS),
        "kv": Key("bit", "width of one KV element", only=WIDTHS),
        "activation": Key("bit", "width of one activation", only=WIDTHS),
    },
    "offload": {
        "host_to_gpu": Key("B/s", "host to GPU"),
        "gpu_to_host_cache": Key("B/s", "KV cache, GPU to host"),
        "gpu_to_host_hidden": Key("B/s", "activations, GPU to host"),
        "disk_to_host": Key("B/s", "disk to host"),
        "disk_weight_share": Key("1", "share of that rate at which weights are read in decode"),
        "host_to_disk_cache_prefill": Key("B/s", "KV cache, host to disk in prefill"),
        "host_to_disk_hidden_prefill": Key("B/s", "activations, host to disk in prefill"),
        "host_to_disk_decode": Key("B/s", "host to disk in decode"),
        "matmul_prefill": Key("FLOP/s", "matrix products with weights in prefill"),
        "matmul_decode": Key("FLOP/s", "matrix products with weights in decode"),
        "attention_prefill": Key("FLOP/s", "attention on the GPU in prefill"),
        "attention_decode": Key("FLOP/s", "attention on the GPU in decode"),
        "cpu_attention": Key(
            "FLOP/s", "attention on the CPU, 64 sequences at once of a model 4096 wide"
        ),
        "cpu_joint": Key("1", "what an octave below in both gives back of that rate"),
        "cpu_small_batch": Key("1", "share of it lost an octave below 64 sequences"),
        "cpu_small_model": Key("1", "share of it lost an octave below a width of 4096"),
        "cpu_floor": Key("1", "smallest share of it that is left"),
        "memory_share": Key("1", "share of every memory that a placement may fill"),
    },
    "policy": {
        "weights_in_dram_up_to": Key(
            "1", "parameters above which weights live on storage", optional=True, zero=True
        ),
        "minimum_chunk": Key(
            "1",
            "prompt tokens an iteration carries even if decoding fills it",
            optional=True,
            whole=True,
        ),
        "weights_per_gpu": Key(
            "B", "weights a GPU may hold before a model is split over more", optional=True
        ),
    },
    "derate": {},
    "trace": {
        "prompt_mean": Key("1", "mean tokens of a prompt"),
        "prompt_std": Key("1", "standard deviation of the prompts"),
        "prompt_longest": Key("1", "longest prompt", whole=True),
        "output_mean": Key("1", "mean tokens a request generates"),
        "output_std": Key("1", "standard deviation of the outputs"),
        "output_longest": Key("1", "longest output", whole=True),
        "longest": Key("1", "most tokens of a request, prompt and output together", whole=True),
    },
    "llm": {
        "layers": Key("1", "transformer blocks", whole=True),
        "hidden": Key("1", "model width", whole=True),
        "ffn": Key("1", "width inside the MLP (of one expert)", whole=True),
        "heads": Key("1", "query heads", whole=True),
        "kv_heads": Key("1", "KV heads", whole=True),
        "head_size": Key("1", "elements of one head", whole=True),
        "vocab": Key("1", "vocabulary entries", whole=True),
        "positions": Key("1", "learned position embeddings (0: none)", whole=True, zero=True),
        "gated": Key(
            "1", "1: gate, up and down matrices; 0: up and down", whole=True, zero=True, most=1
        ),
        "tied": Key(
            "1", "1: input and output embeddings share weights", whole=True, zero=True, most=1
        ),
        "experts": Key("1", "experts of an MoE layer (1: dense)", whole=True),
        "active_experts": Key("1", "experts a token uses", whole=True),
        "moe_every": Key("1", "one layer in this many is MoE", whole=True),
        "published": Key(
            "1", "published parameter count, to check the shape against", optional=True
        ),
    },
}
