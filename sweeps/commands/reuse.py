"""The command `nearkv reuse`: KV caches that outlive a request, over tiers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearkv.hardware.errors import InputError
from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.printing import print_table
from nearkv.sweeps.commands.writing import tell, write_new

TiersOf = Annotated[
    list[str],
    typer.Option(
        "--tier",
        metavar="TIER=SIZE",
        help="A memory that keeps blocks, the nearest first: dram=512GB, ssd=8x3.84TB; also hbm, "
        "cxl, pool, pool-ssd, object.",
    ),
]
System = Annotated[
    str, typer.Option(metavar="SYSTEM", help="The system that computes the prompts.")
]
BlockTrace = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="Requests: JSON lines or CSV of timestamp,input_length,output_length,hash_ids; "
        "a saved curve; or conversation or synthetic, the curves of Mooncake's traces.",
    ),
]
Prefix = Annotated[
    str,
    typer.Option(metavar="TOKENS", help="Without a trace: tokens that requests share."),
]
Hit = Annotated[
    float, typer.Option(metavar="SHARE", help="Without a trace: how often they are found.")
]
Rate = Annotated[
    float, typer.Option(metavar="NUMBER", help="Without a trace: requests a second.")
]
RateScale = Annotated[
    float,
    typer.Option(metavar="FACTOR", help="How many times as fast the requests come."),
]
BlockTokens = Annotated[
    int, typer.Option(metavar="TOKENS", min=1, help="Tokens of a block of the trace.")
]
Policy = Annotated[
    str,
    typer.Option(
        metavar="POLICY",
        help="victim (replayed), exclusive or inclusive (read off the reuse curve).",
    ),
]
Admission = Annotated[
    str,
    typer.Option(
        metavar="RULES",
        help="Which victims the second tier takes: all, second-touch, or both.",
    ),
]
Routing = Annotated[
    str,
    typer.Option(
        metavar="RULE", help="Requests go to the node with the longest prefix, or random."
    ),
]
Slo = Annotated[
    str,
    typer.Option(
        metavar="ttft_s=SECONDS", help="Also the rate at which the mean TTFT is this long."
    ),
]
Drive = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help="Count wear in such drives, and ask again of as many as bear it.",
    ),
]
Staged = Annotated[
    bool,
    typer.Option(
        "--staged",
        help="Blocks from drives and other servers are first put into host DRAM.",
    ),
]
Nodes = Annotated[
    int,
    typer.Option(
        metavar="NUMBER",
        min=0,
        help="Servers; 0: the fewest that compute prompts at most 80 % of their time.",
    ),
]
SaveCurve = Annotated[
    str,
    typer.Option(
        metavar="FILE.json",
        help="Write the curve of the trace, which --trace takes in its place.",
    ),
]

SHOWN = (
    "tier,admission,sized_by,hit_share,total_share,total_low,total_high,prefix_tok,load_ms,"
    "recompute_ms,both_ms,best,load_pays_from_tok,write_gb_s,dwpd,drives_1_dwpd,life_years"
)
"""Columns that a terminal shows."""


@options.taking(options.of_table)
def reuse(
    line: typer.Context,
    tiers: TiersOf = [],
    trace: BlockTrace = "",
    prefix: Prefix = "",
    hit: Hit = 0.0,
    rate: Rate = 0.0,
    rate_scale: RateScale = 1.0,
    block: BlockTokens = 512,
    policy: Policy = "victim",
    admission: Admission = "all",
    routing: Routing = "prefix",
    nodes: Nodes = 0,
    slo: Slo = "",
    drive: Drive = "",
    staged: Staged = False,
    save_curve: SaveCurve = "",
    system: System = "tensor-parallel",
    model: options.OneModel = "",
    platform: options.OnePlatform = "h200-node",
    sets: options.SetOnce = [],
    parts: options.OnePart = [],
) -> None:
    """Say what tiers of KV caches hit between requests, what that saves, and what it wears.

    Example: nearkv reuse --prefix 16k --hit 0.7 --rate 0.5 --model llama3.1-70b --tier dram=512GB
    """
    from nearkv.sweeps.api.reuse import reuse as answer
    from nearkv.sweeps.study.sizes import pairs

    table = answer(
        model,
        tiers=tiers,
        platform=platform,
        system=system,
        trace=trace or None,
        prefix=prefix or 0,
        hit=hit,
        rate=rate,
        rate_scale=rate_scale,
        block=block,
        policy=policy,
        admission=admission,
        routing=routing,
        nodes=nodes,
        slo=slo,
        drive=drive,
        staged=staged,
        sets=pairs(sets, "--set"),
        parts=pairs(parts, "--part"),
    )
    if save_curve:
        _save(Path(save_curve), table.attrs["curve"])
    print_table(
        table,
        options.view_of(line),
        SHOWN,
    )


def _save(file: Path, curve: str) -> None:
    """Write the curve of a trace to a file that does not exist yet, and say so.

    Raises:
        InputError: there is no trace, or the file cannot be written or read again.
    """
    if not curve:
        raise InputError("--save-curve: there is no trace whose curve could be saved")
    if file.suffix != ".json":
        raise InputError(f"--save-curve {file}: --trace reads curves that end in .json")
    write_new(file, curve)
    tell(f"wrote {file}; use it as --trace {file}")
