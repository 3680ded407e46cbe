"""Command lines that have an answer, and what a fuzzer makes of them."""

from __future__ import annotations

from random import Random

from fuzz.words import HOSTILE

LINES = (
    "estimate hilos --model opt-66b --batch 4 --context 8k --output-tokens 32"
    " --set csd.count=8 --knob alpha=0.25 --format json",
    "estimate inf2 --model llama2-70b --batch 8 --context 4k --knob ssd_weights=0.5 --format json",
    "estimate cpu-offload --model gpt-175b --batch 8 --context 2k --format json",
    "compare flexgen-ssd flexgen-dram hilos --model opt-30b --batch 2,4 --context 16k"
    " --output-tokens 16 --columns system,step_ms --format csv",
    "compare gpu-only l3 --model gpt-175b --trace dolphin --format json",
    "compare h2m2 oracle --model gpt3-175b --batch 4 --context 1k --set hbm.memory=80GB"
    " --format json",
    "sweep --system flexgen-ssd --model opt-30b --batch 1,2 --context 8k",
    "solve alpha --system inf2 --model opt-66b --context 16k --batch 8 --format json",
    "solve spill --system inf2 --model opt-66b --context 16k --batch 8"
    " --knob alpha=0.1 --format json",
    "solve beta --model qwen-7b --context 8k --batch 4 --format json",
    "solve mapping --model opt-66b --batch 8 --context 4k --format json",
    "solve batch --system flexgen-ssd --model opt-30b --context 8k --format json",
    "solve hardware --system flexgen-dram --model opt-30b --context 8k --vary host.memory"
    " --target batch_run=8 --format json",
    "solve crossover --system flexgen-ssd,hilos --model opt-30b --along context=4k:64k"
    " --format json",
    "solve subbatch --model gpt-175b --requests 2k,3k,4k --time-limit 1 --format json",
    "solve placement --model opt-30b --context 256 --output-tokens 8 --gpu-batch 4"
    " --num-batches 2 --format json",
    "pareto --system hilos --model opt-30b --batch 1:64:x2 --context 8k --by step_ms,cost_usd"
    " --format json",
    "sensitivity hilos --model opt-30b --batch 4 --context 8k --format json",
    "compare gpu-only l3 --model gpt-175b --trace dolphin --method simulate --seed 3 --format json",
    "solve subbatch --model gpt-175b --requests 20k,30k,40k,90k --prompts 96,1k --slack 0.2"
    " --placement random --set dimm.ranksets=8 --time-limit 1 --format json",
    "solve mapping-trace --model opt-66b --requests 4 --iterations 8 --finish 0.2 --shortest 64"
    " --longest 1k --seed 3 --set hbm.bandwidth=1TB/s --format json",
    "pareto --system hilos --model opt-30b --batch 1:64:x2 --context 8k --by step_ms,cost_usd"
    " --where batch_run>=4 --columns system,step_ms,cost_usd --format json",
    "sensitivity hilos --model opt-30b --context 8k --of step_ms --knob alpha=0.3 --format json",
    "solve crossover --system flexgen-ssd,hilos --model opt-30b --along context=4k:64k"
    " --of step_ms --batch 4 --output-tokens 8 --format json",
    "solve mapping --model opt-66b --platform gh-asymmetric --method greedy --set hbm.memory=80GB"
    " --format json",
    "validate hilos --id hilos-tput-max --format json",
    "report --system hilos --model opt-30b --context 8k -o report.html",
    "systems --format json",
    "systems show hilos --format json",
    "models --format json",
    "models show opt-66b --format json",
    "hardware --format json",
    "hardware show hilos-a100 --format json",
)
"""One or more a command."""
REFUSED = (
    "calibrate --measurements runs.csv --platform aipc-4090 --format json",
    "compare hilos --model config.json --platform bed.toml --format json",
    "sweep study.toml -o rows.csv",
    "plot lines rows.csv -o lines.svg",
    "validate --claims mine.csv --format json",
)
"""Lines whose files do not exist; with a hostile file in their place they are read."""

ADDITIONS = (
    "--output-tokens 24",
    "--platform hilos-h100",
    "--set gpu.flops=1TFLOP/s",
    "--knob alpha=0.125",
    "--knob placement=capacity",
    "--trace dolphin",
    "--method simulate",
    "--seed 3",
    "--batch 3",
    "--context 3k",
    "--columns system",
    "--breakdown",
    "--ratio cost_usd",
    "--chart",
    "--explain",
    "--top 1",
    "--by cost_usd",
    "--best-per batch",
    "--jobs 2",
    "--resume",
    "--of cost_usd",
    "--where batch_run>=9",
    "--search paper",
    "--fix wg=0.1",
    "--slack 0.5",
    "--factor derate.pcie",
)
"""Options with a value; where a command takes one, its answer changes, or it refuses."""

FILE_OPTIONS = (
    "--model",
    "--platform",
    "--trace",
    "--requests",
    "--measurements",
    "--claims",
    "-o",
)
"""Options that name a file, of any command."""
OPTIONS = sorted({word for line in LINES for word in line.split() if word.startswith("--")})


MILD = (
    *("1", "2", "3", "7", "64", "200k", "1M", "4k,8k", "1:8:+1", "1k:64k:x2", "0.5", "1e-3"),
    *("hilos", "inf2", "l3", "h2m2", "oracle", "flexgen-raid", "cpu-offload", "hillinfer", "h2o"),
    *("opt-66b", "llama3.1-8b", "mixtral-8x7b", "gpt-oss-20b", "qwen3-235b-a22b"),
    *("alpha=0.999", "alpha=paper", "ssd_weights=auto", "cpu_share=0", "placement=capacity"),
    *("csd.count=1", "csd.count=1,64", "host.memory=1GB", "host.memory=64TB", "gpu.memory=1GB"),
    *("gpu.count=512", "dimm.ranksets=1", "hbm.memory=1GB", "gpu.flops=1e20FLOP/s"),
    *("ssd.read=1GB/s", "pcie=0.01", "derate.pcie=0.01", "json", "csv", "step_ms", "cost_usd"),
    *("hilos-a100", "inf2-a100", "dgx-a100-pim", "gh-asymmetric", "aipc-4090", "dolphin"),
    *("step_ms<=1e9", "throughput_tok_s>=1", "batch_run>=1", "context=1k:2k", "batch=1:4"),
)
"""Values that some option takes."""


def extreme(words: list[str], random: Random) -> list[str]:
    """A command line with one or two values replaced by others that some option takes."""
    words = list(words)
    values = [place for place in range(1, len(words)) if not is_option(words[place])]
    for _ in range(random.randint(1, 2)):
        words[random.choice(values)] = random.choice(MILD)
    if random.random() < 0.3:
        words += random.choice(ADDITIONS).split()
    return words


def is_option(word: str) -> bool:
    return word.startswith("--") and len(word) > 2


def mutated(words: list[str], random: Random, files: list[str]) -> list[str]:
    """One to three changes of a command line."""
    words = list(words)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(1, len(words) + 1)
        word = random.choice(files) if random.random() < 0.3 else random.choice(HOSTILE)
        change = random.choice((_replace, _replace, _insert, _delete, _option, _repeat, _file))
        change(words, min(place, len(words) - 1), word, random)
    return words


def _replace(words: list[str], place: int, word: str, _: Random) -> None:
    if not is_option(words[place]):
        words[place] = word


def _insert(words: list[str], place: int, word: str, _: Random) -> None:
    words.insert(place, word)


def _delete(words: list[str], place: int, _: str, __: Random) -> None:
    if len(words) > 2:
        del words[place]


def _option(words: list[str], _: int, word: str, random: Random) -> None:
    words += [random.choice(OPTIONS), word]


def _file(words: list[str], _: int, word: str, random: Random) -> None:
    words += [random.choice(FILE_OPTIONS), word]


def _repeat(words: list[str], place: int, _: str, __: Random) -> None:
    words += words[place : place + 2]


def with_each_addition(words: list[str]) -> list[tuple[str, list[str]]]:
    """Every addition that a line has not, and the line with it."""
    repeatable = ("--set", "--knob", "--where", "--factor")
    longer = []
    for addition in ADDITIONS:
        option = addition.split()[0]
        if option not in words or option in repeatable:
            longer.append((addition, words + addition.split()))
    return longer


def without_each_option(words: list[str]) -> list[tuple[str, list[str]]]:
    """Every option of a line with a value, and the line without it."""
    shorter = []
    for place, word in enumerate(words[:-1]):
        if is_option(word) and not is_option(words[place + 1]):
            shorter.append((word, words[:place] + words[place + 2 :]))
    return shorter
