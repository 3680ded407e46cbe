"""The closed form of latency under load against the simulation, on random workloads.

`python -m bench.load` draws workloads of system gpu: a model on a part of a server, a chunk,
lengths by lognormal laws whose 99th percentile is up to 20 medians, and a rate of 10 to 80 % of
what the simulation serves at most, a quarter of them above 60 %. `NEARKV_WORKLOADS=200` sets how
many.
"""

import os
import warnings
from dataclasses import replace

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.mechanisms.serving.arrivals import FULL_SHARE, at_rate, laws_of
from nearkv.costmodel.mechanisms.serving.residents import resident
from nearkv.costmodel.model.workload import Arrivals, Serving, Workload
from nearkv.solvers.goodput import first_within, quantile, within
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.simulate.play import simulate
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.study.traces import Trace

MACHINES = (
    ("llama3.1-8b", "hgx-h100", 1, 1),
    ("llama3.1-8b", "hgx-a100", 1, 2),
    ("llama3.1-70b", "hgx-h200", 4, 1),
    ("llama3.1-70b", "hgx-h100", 4, 2),
    ("qwen2.5-32b", "hgx-a100", 2, 4),
    ("mixtral-8x7b", "hgx-h200", 2, 2),
    ("qwen3-30b-a3b", "hgx-h100", 1, 4),
    ("gpt-oss-120b", "hgx-b200", 1, 2),
    ("qwen3-8b", "rtx-4090-box", 1, 1),
    ("llama3.1-8b", "rtx-5090-server", 1, 8),
)
"""Model, platform, tp and dp."""
REQUESTS = 4000


def lengths(random: np.random.Generator, mean: float, most: float) -> Numbers:
    """Tokens of requests by a lognormal law whose 99th percentile is 1 to 20 medians."""
    sigma = np.log(random.uniform(1, 20)) / 2.326
    drawn = np.exp(sigma * random.standard_normal(REQUESTS) - sigma**2 / 2) * mean
    tokens: Numbers = np.clip(np.rint(drawn), 2, most)
    return tokens


def unlike(random: np.random.Generator) -> Trace:
    """Requests of unlike lengths, answers of 8 to 1,500 tokens on average."""
    prompt, output = np.exp(random.uniform(np.log([128, 8]), np.log([16_000, 1500])))
    return Trace("drawn", lengths(random, prompt, 60_000), lengths(random, output, 8000))


def served(
    random: np.random.Generator, trace: Trace, **load: str
) -> tuple[Workload, Serving] | None:
    """Requests as a machine serves them that is drawn; none where it does not hold them.

    Args:
        random, trace: where the machine is drawn from, and the requests.
        load: `rate` or `users`, as a study takes it.
    """
    model, platform, tp, dp = MACHINES[random.integers(len(MACHINES))]
    chunk = random.choice([0, 512, 2048, 8192, 8192])
    knobs = {"tp": tp, "dp": dp, "pp": 1, "ep": 1, "attention": "tp", "chunk": chunk}
    study = Study(("gpu",), (model,), platforms=(platform,), knobs=knobs, **load)
    (block,) = blocks(study)
    hw, llm, asked, named = block.inputs(block.grid.whole)
    mean = trace.workload
    work = replace(mean, batch=asked.batch, arrivals=asked.arrivals)
    answer = resolve_knobs(block.system, hw, llm, work, named).estimate
    serving = answer.serving
    assert serving is not None
    longest = float(np.max(trace.prompt + trace.output))
    of_a_replica = float(serving.capacity / serving.replicas)
    if np.all(answer.fits.fit) and longest < of_a_replica / 2:
        return work, serving
    return None


def at_a_rate(random: np.random.Generator) -> tuple[Trace, Workload, Serving]:
    """Requests, and a machine that holds them."""
    while True:
        trace = unlike(random)
        if held := served(random, trace, rate="1"):
            return trace, *held


def saturation(trace: Trace, serving: Serving) -> float:
    """Requests per second while some always wait."""
    in_memory = float(serving.capacity) / float(trace.workload.context)
    count = int(min(max(1500, 6 * in_memory), 12_000))
    few = Trace(trace.name, np.resize(trace.prompt, count), np.resize(trace.output, count))
    ended = np.sort(simulate(few, serving).ended)
    quarter = count // 4
    return 2 * quarter / float(ended[3 * quarter] - ended[quarter])


def main() -> None:
    warnings.simplefilter("ignore")
    apart: list[tuple[float, ...]] = []
    says, goodputs = [], []
    for seed in range(int(os.environ.get("NEARKV_WORKLOADS", "200"))):
        random = np.random.default_rng(seed)
        trace, work, serving = at_a_rate(random)
        share = random.uniform(0.6, 0.8) if seed % 4 == 0 else random.uniform(0.1, 0.6)
        rate = share * saturation(trace, serving)
        queue = simulate(trace, serving, Arrivals(rate=rate), seed)
        answer = at_rate(work, serving, rate)
        laws = laws_of(answer)
        held = float(resident(work, serving) / serving.replicas)
        flagged = bool(answer.overloaded) or float(answer.at_once) > FULL_SHARE * held
        ttft, tpot = float(answer.latency.ttft), float(answer.latency.tpot)
        p90 = float(quantile(laws, 0.9))
        errors = (
            ttft / queue.ttft.mean() - 1,
            tpot / queue.tpot.mean() - 1,
            p90 / np.percentile(queue.tpot, 90) - 1,
        )
        for far in (0.7, 1.3, 2.0):
            limits = Arrivals(ttft_slo=far * queue.ttft.mean(), tpot_slo=far * queue.tpot.mean())
            met = float(np.mean(queue.meets(limits)))
            kept = first_within(laws, limits.ttft_slo)
            kept = float(kept * within(laws, limits.tpot_slo))
            goodputs.append(abs(kept - met) <= 0.15 * max(met, 0.05))
        apart.append(errors)
        says.append(flagged)
        shown = "  ".join(f"{error:+.0%}" for error in errors)
        print(
            f"{seed:3d} {trace.name:28s} {share:.0%} of saturation: {shown}"
            f"{'  says that it does not hold' if flagged else ''}",
            flush=True,
        )
    errors = np.abs(np.array(apart))
    silent = errors[~np.array(says)]
    for name, column in zip(("mean TTFT", "mean TPOT", "p90 TPOT"), errors.T, strict=True):
        print(
            f"{name}: within 15 % on {np.mean(column <= 0.15):.0%}, median {np.median(column):.1%}"
        )
    print(f"beyond 40 % without saying so: {np.sum(np.any(silent > 0.4, axis=1))}")
    print(f"says that it does not hold: {np.mean(says):.0%}")
    print(f"goodput within 15 %: {np.mean(goodputs):.0%}")


if __name__ == "__main__":
    main()
