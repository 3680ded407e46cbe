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
    "compare gpu l3 --platform dgx-a100-pim --model gpt-175b --trace dolphin --format json",
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
    " --slo batch_run=8 --format json",
    "solve crossover --system hilos,inf2 --model opt-30b --along context=4k:64k --format json",
    "solve subbatch --model gpt-175b --requests 2k,3k,4k --time-limit 1 --format json",
    "solve placement --model opt-30b --context 256 --output-tokens 8 --gpu-batch 4"
    " --num-batches 2 --format json",
    "pareto --system hilos --model opt-30b --batch 1:64:x2 --context 8k --by step_ms,cost_usd"
    " --format json",
    "sensitivity hilos --model opt-30b --batch 4 --context 8k --format json",
    "compare gpu l3 --platform dgx-a100-pim --model gpt-175b --trace dolphin"
    " --method simulate --seed 3 --format json",
    "solve subbatch --model gpt-175b --requests 20k,30k,40k,90k --prompts 96,1k"
    " --homes random --set dimm.ranksets=8 --time-limit 1 --format json",
    "pareto --system hilos --model opt-30b --batch 1:64:x2 --context 8k --by step_ms,cost_usd"
    " --where batch_run>=4 --columns system,step_ms,cost_usd --format json",
    "sensitivity hilos --model opt-30b --context 8k --of step_ms --knob alpha=0.3 --format json",
    "solve crossover --system hilos,inf2 --model opt-30b --along context=4k:64k"
    " --of step_ms --batch 4 --output-tokens 8 --format json",
    "solve mapping --model opt-66b --platform gh-asymmetric --method greedy --set hbm.memory=80GB"
    " --format json",
    "design gpu --server dgx-spark-desktop,mac-studio-desktop --model llama3.1-8b --users 4"
    " --context 8k --budget 40kUSD --format json",
    "reuse --model llama3.1-70b --prefix 16k --hit 0.7 --rate 0.5 --tier ssd=8x3.84TB"
    " --format json",
    "validate hillinfer --id HI-001 --format json",
    "report --system hilos --model opt-30b --context 8k -o report.html",
    "figure hilos-fig10 --part gpu=h100-80gb -o figure.svg",
    "columns --format json",
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


SIZES = ("1", "2", "3", "7", "64", "200k", "1M", "4k,8k", "1:8:+1", "1k:64k:x2")
MILD = {
    "--batch": SIZES,
    "--context": SIZES,
    "--output-tokens": SIZES,
    "--model": ("opt-66b", "llama3.1-8b", "mixtral-8x7b", "gpt-oss-20b", "qwen3-235b-a22b"),
    "--system": ("hilos", "inf2", "l3,gpu", "oracle", "flexgen-raid,hilos", "hillinfer"),
    "--set": ("gpu.count=512", "gpu.memory=1GB", "gpu.flops=1e20FLOP/s", "host.memory=1GB,64TB"),
    "--knob": ("alpha=0.999", "alpha=paper,auto", "ssd_weights=auto", "placement=capacity"),
    "--by": ("step_ms,cost_usd", "endurance_requests,energy_j_tok", "throughput_tok_s,prefill_s"),
    "--of": ("step_ms", "energy_j_tok", "endurance_requests", "prefill_s"),
    "--where": ("step_ms<=1e9", "throughput_tok_s>=1", "batch_run>=1"),
    "--slo": ("batch_run=1", "step_ms<=1e5", "throughput_tok_s>=1", "endurance_requests>=1e9"),
    "--vary": ("gpu.memory", "host.memory=1GB:1TB", "gpu.flops", "ssd.count"),
    "--along": ("context=1k:2k", "batch=1:4", "batch=1:512", "host.memory=64GB:1TB"),
    "--requests": ("1", "1,2", "2k,64k", "dolphin", "7"),
    "--format": ("json", "csv"),
}
"""Options -> values that most commands take."""


def extreme(words: list[str], random: Random) -> list[str]:
    """A command line with one or two values replaced by others that their options take."""
    words = list(words)
    known = [place for place, word in enumerate(words[1:]) if word in MILD]
    for _ in range(random.randint(1, 2)):
        if known:
            place = random.choice(known)
            words[place + 2] = random.choice(MILD[words[place + 1]])
    if random.random() < 0.2:
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
