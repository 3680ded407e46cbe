"""The commands `nearkv solve QUESTION`: the best value, its bound, and the paper's rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from nearkv.hardware.errors import InputError
from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import argument, option
from nearkv.sweeps.commands.printing import check_readable, print_table

if TYPE_CHECKING:
    from nearkv.sweeps.api.arguments import Axes

# Names of columns are written as `--columns` takes them, the most important first: a narrow
# terminal drops the last.
KNOB = (
    "system,model,platform,trace,batch,batch_run,context_tok,output_tokens,status,short_of,"
    "step_ms,value,gap"
)
"""Columns that a terminal shows of `solve alpha`, `solve spill` and `solve knob`."""
MAPPING = (
    "model,platform,batch,context_tok,method,status,reason,n_attention,n_qkv,n_fc,"
    "step_ms,bound_ms,gap,bound_by,rule_loss,a_major_loss,q_major_loss,f_major_loss,"
    "total_s,auto_total_s,auto_n_attention,auto_n_qkv,auto_n_fc"
)
"""Columns that a terminal shows of `solve mapping`."""
BETA = (
    "model,platform,batch,batch_run,context_tok,output_tokens,sigma,hop,status,short_of,step_ms,"
    "kv_gpu_gb,kv_host_gb,kv_drive_gb,value,t_cpu_ms,t_csd_ms,bound_ms,gap,bound_by,rule,"
    "rule_loss,rule_sec54,rule_sec54_loss,total_s,auto_value,auto_total_s"
)
"""Columns that a terminal shows of `solve beta`."""
PLACED = (
    "context_tok,output_tokens,status,gpu_batch,num_batches,throughput_tok_s,"
    "wg,wc,wd,cg,cc,cd,hg,hc,binding,reason"
)
"""Columns that a terminal shows of several placements, behind the model and the machine."""
BATCH_COLUMNS = (
    "system,model,platform,context_tok,output_tokens,largest_batch,short_of,value,"
    "throughput_tok_s,step_ms"
)
"""Columns of `solve batch` that come before the others."""
SUBBATCH_COLUMNS = (
    "load,method,decode_ms,bound_ms,gap,rule_loss,sub_batch_0,sub_batch_1,larger_tok,"
    "bound_tok,proof,chunks_0,chunks_1,phase_0_ms,phase_1_ms,iteration_ms,"
    "split_decode_ms,prompt_tok,most_prompt_tok"
)
"""Columns that a terminal shows of `solve subbatch`."""

SEARCHED = ("method", "resolution")
"""Columns that say how an answer was searched, which people do not see."""

TargetsOption = Annotated[
    list[str],
    option(
        "MEASURE=VALUE",
        "Limits that must hold: throughput_tok_s=1.0, or step_ms=50,prefill_s=2.",
        "--slo",
    ),
]


def show_knob(
    line: typer.Context, question: str, systems: str, usual: str, **arguments: Any
) -> None:
    """Solve a knob, and print the point, the answer, the bound, the paper's rules, and why."""
    from nearkv.sweeps.api.solve import solve_findings
    from nearkv.sweeps.commands.papers import tell_solved
    from nearkv.sweeps.study.study import blocks

    view, study = options.view_of(line), options.study_of(line, systems)
    check_readable(sum(block.grid.size for block in blocks(study)), view)
    answer = solve_findings(question, study, **arguments)
    # a band and each rule of a paper bring columns of their own
    beside = ("value_", "regret_", "bound_", "rule", "measured")
    names = [name for name in answer.columns if name.startswith(beside)]
    print_table(answer, view, ",".join([usual, *names]), study)
    tell_solved(
        study, view, answer, lambda other: solve_findings(question, other, **arguments)
    )


def show_searched(
    line: typer.Context, question: str, systems: str, first: str = "", **arguments: Any
) -> None:
    """Search an answer, and print it without the columns that say how it was searched.

    Args:
        line, question, systems, arguments: what is asked.
        first: columns that come before the others.
    """
    from nearkv.sweeps.api.solve import solve_findings
    from nearkv.sweeps.commands.papers import tell_solved

    view, study = options.view_of(line), options.study_of(line, systems)
    answer = solve_findings(question, study, **arguments)
    names = [name for name in answer.columns if name not in SEARCHED]
    print_table(answer, view, ",".join([first, *names]), study)
    tell_solved(study, view, answer)


@options.with_options(options.of_study, options.View)
def alpha(
    line: typer.Context,
    system: options.SystemNames = "hilos",
) -> None:
    """Find the best X-cache share: exact, with a lower bound.

    Beside it stand the paper's closed form and its power of two (HILOS sec. 4.2), and what
    each loses. With --band, how far it moves over what is unknown, and what that costs.

    Example: nearkv solve alpha --model opt-66b,qwen2.5-32b --context 32k --platform hilos-a100
    """
    show_knob(line, "alpha", system, KNOB)


@options.with_options(options.of_study, options.View)
def spill(
    line: typer.Context,
    system: options.SystemNames = "hilos",
) -> None:
    """Find the best spill interval c by trying every one.

    Beside it stands the paper's page over entry (HILOS sec. 4.3), and what it loses.

    Example: nearkv solve spill --model opt-30b,opt-66b --context 16k --platform hilos-a100
    """
    show_knob(line, "spill", system, KNOB)


@options.with_options(options.of_study, options.View)
def knob(
    line: typer.Context,
    name: Annotated[
        str,
        argument("KNOB", "A knob; `nearkv systems show` lists them."),
    ],
    system: options.SystemNames = "hilos",
) -> None:
    """Find the best value of any knob, such as one of a system of your own.

    A share is solved exactly, with a lower bound; of a count or a choice every value is tried.
    `nearkv systems show SYSTEM` lists the knobs. With --band as `solve alpha`.

    Example: nearkv solve knob cache --system zero-inference --model opt-30b --context 8k
    """
    show_knob(line, "knob", system, f"{KNOB},total_s", name=name)


@options.with_options(options.of_study, options.View)
def beta(line: typer.Context) -> None:
    """Find the best split of the KV cache between host DRAM and SmartSSD, with a lower bound.

    Best is meant as in eq. 2 (HillInfer). Beside it stand eq. 4 and the formula of sec. 5.4, what
    each loses there, and the split of the shortest request, write-back included.
    With --band, how far it moves.

    Example: nearkv solve beta --model qwen-7b --batch 8 --context 12k --platform aipc-4090
    """
    show_knob(line, "beta", "hillinfer", BETA)


@options.with_options(
    options.axes(
        "models",
        "batch",
        "context",
        "output_tokens",
        "sets",
        "parts",
        models=...,
        batch="32",
        context="1k",
        output_tokens="1",
    ),
    options.View,
)
def mapping(
    line: typer.Context,
    platform: options.StatedPlatforms = "gh-asymmetric",
    method: Annotated[
        str, option("METHOD", "exact, greedy (Algorithm 1), milp or brute.")
    ] = "exact",
) -> None:
    """Find the heads of each sub-layer to put on HBM, for one decode step.

    Beside it stand Algorithm 1 and the paper's majors (H2M2 sec. 3.3, 4.3), and what each loses.
    The step sees the mean context, as in every command. With --output-tokens, the time of the whole
    request stands beside that of the mapping that makes it shortest, which `auto` takes.

    Example: nearkv solve mapping --model gpt3-175b --batch 32 --context 1024 --method exact
    """
    from nearkv.sweeps.api.arguments import study_of
    from nearkv.sweeps.api.solve import solve_findings

    axes = options.arguments(line)
    model, _ = axes.pop("model"), axes.pop("method")
    study = study_of("asymmetric", model, cast("Axes", axes))
    answer = solve_findings("mapping", study, method=method)
    print_table(answer, options.view_of(line), MAPPING, study)


@options.with_options(options.View)
def subbatch(
    line: typer.Context,
    model: options.OneModel,
    requests: Annotated[
        str, option("SIZES", "Contexts in flight: 2k,3k,4k,5k, a trace, or FILE.csv.")
    ],
    prompts: Annotated[
        str, option("SIZES", "Prompts that wait: 96,1k. A trace brings its own.")
    ] = "",
    platform: options.OnePlatform = "dgx-a100-pim",
    homes: Annotated[
        str, option("RULE", "balanced, or random: each request on one rankset.")
    ] = "balanced",
    time_limit: Annotated[
        float, option("SECONDS", "Time to search; what is not proven by then is marked.")
    ] = 10.0,
    seed: Annotated[
        int,
        option(
            "NUMBER",
            "Seed of requests drawn from a trace, of their ages, and of random ranksets.",
            min=0,
        ),
    ] = 0,
    sets: options.SetOnce = [],
    parts: options.OnePart = [],
) -> None:
    """Split one iteration of L3 into sub-batches and chunks: proven best.

    Beside it stands the paper's greedy (L3 sec. 5.3), by tokens alone and by modelled times.
    The platform needs DIMM-PIM.

    Example: nearkv solve subbatch --requests 2k,3k,4k,5k --model gpt-175b --platform dgx-a100-pim
    """
    from nearkv.sweeps.api.solve import solve_findings
    from nearkv.sweeps.explore.subbatch import brief

    answer = solve_findings("subbatch", **options.arguments(line))
    view = options.view_of(line)
    people = view.is_for_people and not view.file
    shown = brief(answer.rows) if people else answer.rows
    print_table(shown, view, SUBBATCH_COLUMNS, below=answer.conclusion)


@options.with_options(
    options.axes(
        "models",
        "context",
        "output_tokens",
        "sets",
        "parts",
        models=...,
        context="512",
        output_tokens="32",
    ),
    options.View,
)
def placement(
    line: typer.Context,
    platform: options.StatedPlatforms = "t4-flexgen",
    search: Annotated[
        str, option("SEARCH", "full: the proven best block; paper: FlexGen's own walk.")
    ] = "full",
    gpu_batch: Annotated[
        int | None, option("N", "Sequences on the GPU at once; default: the best.")
    ] = None,
    num_batches: Annotated[
        int | None, option("N", "GPU batches of a block; default: the best.")
    ] = None,
    fix: Annotated[
        list[str], option("SHARE=VALUE", "A share that is fixed: wg=0.2, cc=100%.")
    ] = [],
) -> None:
    """Place weights, KV cache and activations on GPU, CPU and disk.

    FlexGen's linear program (ICML 2023, sec. 4.3) and the best block, with what each memory is
    worth. The platform needs a role `offload`.

    Example: nearkv solve placement --model opt-30b --set gpu.memory=16GiB --set host.memory=200GiB
    """
    from nearkv.sweeps.api.solve import solve_findings
    from nearkv.sweeps.explore.placement import shares_of
    from nearkv.sweeps.study.sizes import comma_list, pairs

    stated = options.arguments(line)
    shares = shares_of(pairs(comma_list(",".join(fix)), "--fix"))
    answer = solve_findings("placement", **stated | {"fix": shares})
    machine = ["model", "platform", *(f"{role}.part" for role in stated["parts"])]
    # a single placement is read as a list, which has space for every column
    usual = ",".join([*machine, PLACED]) if len(answer) > 1 else ""
    print_table(answer, options.view_of(line), usual)


@options.with_options(options.of_study, options.View)
def batch(
    line: typer.Context,
    system: options.SystemNames = "hilos",
    limits: TargetsOption = [],
) -> None:
    """Find the largest batch that is served at once, and the batch of best throughput.

    No batch up to the largest exceeds `bound_tok_s`.

    Example: nearkv solve batch --system hilos,flexgen-dram --model opt-66b --context 16k,64k
    """
    # its value says nothing: 16 is also what is taken where it is left out
    source = line.get_parameter_source("batch")
    if source is not None and source.name == "COMMANDLINE":
        raise InputError("solve batch chooses the batch; leave out --batch")
    show_searched(line, "batch", system, BATCH_COLUMNS, slo=limits)


@options.with_options(options.of_study, options.View)
def hardware(
    line: typer.Context,
    vary: Annotated[str, option("ROLE.KEY[=LOW:HIGH]", "The number to choose: csd.count.")],
    limits: TargetsOption = [],
    system: options.SystemNames = "hilos",
) -> None:
    """Find the least hardware that meets an SLO, or what stands in the way.

    An SLO is MEASURE=VALUE (the better side), >=, <=, or a ratio as in speedup:flexgen-ssd>=5;
    all must hold.

    Example: nearkv solve hardware --model opt-66b --context 64k --vary csd.count=1:16 \
--slo throughput_tok_s=0.25
    """
    show_searched(line, "hardware", system, vary=vary, slo=limits)


@options.with_options(options.of_study, options.View)
def crossover(
    line: typer.Context,
    along: Annotated[
        str,
        option(
            "AXIS=LOW:HIGH",
            "The axis to search: context=4k:1M, batch=1:64 or csd.count=1:64.",
        ),
    ],
    system: options.SystemNames = "flexgen-dram,hilos",
    of: options.Of = "decode_tok_s",
) -> None:
    """Find where one system overtakes another along an axis.

    Example: nearkv solve crossover --system flexgen-dram,hilos --model opt-66b \
--along context=1k:1M
    """
    show_searched(line, "crossover", system, along=along, of=of)
