"""The command `nearkv reuse`: KV caches that outlive a request, over tiers."""

from __future__ import annotations

from typing import Annotated

import typer

from nearkv.hardware.errors import InputError
from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.messages import NO_ANSWER
from nearkv.sweeps.commands.options import flag, option
from nearkv.sweeps.commands.plot import Figure, Width
from nearkv.sweeps.commands.printing import print_table

BlockTraceOption = Annotated[
    str,
    option(
        "FILE",
        "Requests: JSON lines or CSV of timestamp,input_length,output_length,hash_ids, as "
        "Mooncake and Bailian publish them; or conversation or synthetic, two of Mooncake's.",
    ),
]
PolicyOption = Annotated[
    str,
    option(
        "POLICY", "Blocks that tiers keep: exclusive, inclusive, victim or write-through."
    ),
]
Admission = Annotated[
    str,
    option(
        "RULES",
        "Blocks that enter further tiers: all, second-touch, or one after the other.",
    ),
]

TIER_COLUMNS = (
    "tier,hit_share,total_share,load_ms,recompute_ms,layerwise_ms,best,prompt_ms,load_pays_from_tok,read_gb_s,"
    "write_gb_s,dwpd,life_years,most_req_s,total_low,total_high,prefix_tok,both_ms,drives_1_dwpd,"
    "tpot_ms,req_s,status"
)
"""Columns that a terminal shows, the most important first."""
WEAR_COLUMNS = (
    "tier,admission,sized_by,total_share,write_gb_s,reads_per_write,drives_1_dwpd,life_years,"
    "dwpd,capacity_gb,hit_share,usd,status"
)
"""Columns of a question about wear."""


def of_server(
    tiers: Annotated[
        list[str],
        option(
            "TIER=SIZE",
            "Tiers that keep blocks, the nearest first: hbm, dram=512GB, cxl, ssd=8x3.84TB, pool, "
            "pool-ssd or object.",
            "--tier",
        ),
    ] = [],
    system: Annotated[
        str, option("SYSTEM", "The system that computes the prompts.")
    ] = "gpu",
    model: options.OneModel = "",
    platform: options.OnePlatform = "h200-node",
    sets: options.SetOnce = [],
    parts: options.OnePart = [],
) -> None:
    """Options that describe a server and its tiers, in the order of the help."""


of_knobs = options.axes("knobs")


def of_requests(
    trace: BlockTraceOption = "",
    rate_scale: Annotated[
        float, option("FACTOR", "Times as fast as in the trace that requests come.")
    ] = 1.0,
    time_unit: Annotated[
        str, option("UNIT", "Unit of the trace's arrivals: s, ms, us or ns.")
    ] = "",
    block: Annotated[
        int, option("TOKENS", "Tokens of a block; 0: those of the format, or 512.", min=0)
    ] = 0,
    groups: Annotated[
        int,
        option("NUMBER", "Without a trace: groups of prompts that share a prefix.", min=0),
    ] = 0,
    prefix: Annotated[
        str, option("TOKENS", "Without a trace: tokens that requests share, as 16k.")
    ] = "",
    requests: Annotated[
        int, option("NUMBER", "Requests of all groups together.", "--requests", min=0)
    ] = 0,
    order: Annotated[
        str, option("ORDER", "Order in which groups ask: random, or round.")
    ] = "random",
    turns: Annotated[
        int, option("NUMBER", "Turns of conversations that begin with --prefix.", min=1)
    ] = 1,
    grow: Annotated[
        str, option("TOKENS", "Tokens that each turn adds to the prompt.")
    ] = "",
    pause: Annotated[
        str, option("SECONDS", "Time between the turns of a conversation, as 20s.")
    ] = "",
    rate: Annotated[
        str, option("NUMBER", "Without a trace: requests a second, as 2/s.")
    ] = "",
    output_tokens: Annotated[
        str, option("TOKENS", "Without a trace: tokens of an answer.")
    ] = "",
    nodes: Annotated[int, option("NUMBER", "Servers; 0: the fewest that do.", min=0)] = 0,
    slo: Annotated[str, option("ttft_s=SECONDS", "The mean time to the first token.")] = "",
) -> None:
    """Options that describe requests and what serves them."""


@options.with_options(of_requests, of_server, of_knobs, options.View)
def reuse(
    line: typer.Context,
    hit: Annotated[
        float, option("SHARE", "Without a trace: share of requests that find --prefix.")
    ] = 0.0,
    users: Annotated[
        int,
        option("NUMBER", "Users that ask again when answered, in place of a rate.", min=0),
    ] = 0,
    policy: PolicyOption = "exclusive",
    admission: Admission = "all",
    routing: Annotated[
        str,
        option("RULE", "Node of a request: prefix, the one with the longest, or random."),
    ] = "prefix",
    drive: Annotated[
        str,
        option(
            "SIZE",
            "Count wear in drives of this size, and add rows of as many as bear it: 30.72TB.",
        ),
    ] = "",
    staged: Annotated[
        bool, flag("--staged", "Drives and other servers send to host DRAM first.")
    ] = False,
) -> None:
    """Say what tiers of KV caches hit between requests, what that saves, and what it wears.

    Example: nearkv reuse --prefix 16k --hit 0.7 --rate 0.5 --model llama3.1-70b --tier dram=512GB
    """
    from nearkv.sweeps.api import reuse
    from nearkv.sweeps.api.tables import findings_of

    found = findings_of(reuse.reuse(**options.arguments(line)))
    asks_wear = drive or len({*found.columns["admission"]}) > 1
    print_table(found, options.view_of(line), WEAR_COLUMNS if asks_wear else TIER_COLUMNS)
    if {*found.columns["status"]} == {"infeasible"}:
        raise typer.Exit(NO_ANSWER)


@options.with_options(of_requests, of_server, of_knobs, options.View)
def tiers(
    line: typer.Context,
    minimize: Annotated[
        str, option("COLUMN", "Column to make least: usd_hour.")
    ] = "usd_hour",
    years: Annotated[float, option("NUMBER", "Years over which tiers are paid for.")] = 4.0,
    policy: PolicyOption = "exclusive",
    admission: Admission = "all",
) -> None:
    """Find the cheapest sizes of tiers of KV caches with which requests meet a mean TTFT.

    Tiers are --tier dram=128GB:2TB:+128GB, or a name alone: any number of its parts.

    Example: nearkv solve tiers --trace conversation --model llama3.1-70b --slo ttft_s=4
    """
    from nearkv.sweeps.api.reuse import tier_sizes

    if minimize != "usd_hour":
        raise InputError(f"--minimize {minimize!r}: tiers are chosen by price, usd_hour")
    arguments = options.arguments(line)
    del arguments["minimize"]
    found = tier_sizes(**arguments)
    print_table(found, options.view_of(line), ",".join(found.columns))


@options.with_options(of_server, of_knobs)
def picture(
    line: typer.Context, file: Figure, trace: BlockTraceOption = "", width: Width = "column"
) -> None:
    """Draw hits over capacity of traces, or loading and recomputing of a prefix over its length.

    Example: nearkv plot reuse --trace conversation,synthetic -o hits.pdf
    """
    from nearkv.sweeps.api.reuse import fetch_times, hit_curves
    from nearkv.sweeps.commands.drawing import check_figure, save_figure
    from nearkv.sweeps.figures.lines import lines

    arguments = options.arguments(line)
    del arguments["trace"], arguments["width"]
    if bool(trace) == bool(arguments["tiers"]):
        raise InputError("give --trace for hits, or --tier and --model for times")
    check_figure(file)
    if trace:
        drawn, over, by = hit_curves(trace), "capacity_tok", "trace"
        axes = lines(drawn, "hit_share", over=over, by=by, width=width)
    else:
        drawn, over, by = fetch_times(**arguments), "prefix_tok", "way"
        axes = lines(drawn, "fetch_ms", over=over, by=by, width=width)
    save_figure(axes.figure, file)
