"""The options that commands share."""

from __future__ import annotations

from typing import Annotated

import typer

System = Annotated[
    str, typer.Argument(metavar="SYSTEM", help="A system; `nearkv systems` lists them.")
]
Systems = Annotated[
    list[str],
    typer.Argument(
        metavar="SYSTEM...", help="Systems; the first is what the others are compared with."
    ),
]
Named = Annotated[
    str,
    typer.Option(
        "--system",
        metavar="SYSTEMS",
        help="Comma-separated systems; `nearkv systems` lists them.",
    ),
]
Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="ROLE.KEY=VALUES",
        help="Replace a hardware number: csd.count=4,8,16.",
    ),
]
Knobs = Annotated[
    list[str],
    typer.Option(
        "--knob",
        metavar="KNOB=VALUES",
        help="Set a knob to values, to a rule of the paper, or to auto: alpha=0,0.5,auto.",
    ),
]
Llm = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODELS",
        help="Comma-separated models, as `nearkv models` lists them, or path/config.json.",
    ),
]
Batch = Annotated[
    str,
    typer.Option(
        "--batch", metavar="SIZES", help="Sequences served together: 16, 1,8,64 or 1:64:x2."
    ),
]
Context = Annotated[
    str,
    typer.Option(
        "--context",
        metavar="SIZES",
        help="Prompt tokens of each sequence: 64k or 8k:128k:x2.",
    ),
]
OutputTokens = Annotated[
    str,
    typer.Option(
        "--output-tokens", metavar="SIZES", help="Tokens that each sequence generates."
    ),
]
Bed = Annotated[
    str,
    typer.Option(
        "--platform",
        metavar="PLATFORMS",
        help="Comma-separated platforms, as `nearkv hardware` lists them, or path/file.toml; "
        "default: that of each system's paper.",
    ),
]
Beds = Annotated[
    str,
    typer.Option(
        "--platform",
        metavar="PLATFORMS",
        help="Comma-separated platforms, as `nearkv hardware` lists them, or path/file.toml.",
    ),
]
OneLlm = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="One model, as `nearkv models` lists them, or path/config.json.",
    ),
]
OneBed = Annotated[
    str,
    typer.Option(
        "--platform",
        metavar="PLATFORM",
        help="One platform, as `nearkv hardware` lists them, or path/file.toml.",
    ),
]
SetOnce = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="ROLE.KEY=VALUE",
        help="Replace a hardware number by one value: csd.count=16.",
    ),
]
OnePart = Annotated[
    list[str],
    typer.Option(
        "--part",
        metavar="ROLE=PART",
        help="Swap a part of the platform for one: gpu=h200-sxm or csd=./mine.toml.",
    ),
]
Traces = Annotated[
    str,
    typer.Option(
        "--trace",
        metavar="TRACES",
        help="Requests in place of lengths: openr1,dolphin, or FILE.csv of "
        "input_tokens,output_tokens.",
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="METHOD",
        help="With a trace: fluid (averages), or simulate (its queue, event by event).",
    ),
]
Zip = Annotated[
    list[str],
    typer.Option(
        "--zip",
        metavar="AXIS=VALUES...",
        help="Axes whose values are paired: context=1k,8k output_tokens=100,350.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="NUMBER",
        min=0,
        help="Seed of the requests drawn from a trace, and of the draws of --band.",
    ),
]
Parts = Annotated[
    list[str],
    typer.Option(
        "--part",
        metavar="ROLE=PARTS",
        help="Swap a part of the platform: gpu=a100-40gb,h200-sxm or csd=./mine.toml.",
    ),
]
Plugins = Annotated[
    list[str],
    typer.Option(
        "--plugin", metavar="FILE.py", help="A file that registers systems of your own."
    ),
]
StudyFile = Annotated[
    str,
    typer.Argument(
        metavar="STUDY.toml",
        help="A study file, or a study of the catalogue (inf2-fig10), in place of the axes.",
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", metavar="FORMAT", help="table, csv, json, markdown or latex."),
]
Pivot = Annotated[
    str,
    typer.Option(
        "--pivot",
        metavar="COLUMN",
        help="Make a column of each value of this one: context_tok. Cells show the first of "
        "--columns that is an answer.",
    ),
]
Caption = Annotated[
    str,
    typer.Option(
        "--caption",
        metavar="TEXT",
        help="Caption of the table, with --format latex or -o FILE.tex.",
    ),
]
Label = Annotated[
    str, typer.Option("--label", metavar="NAME", help="Label of the table, as --caption.")
]
Only = Annotated[
    str,
    typer.Option(
        "--columns", metavar="COLUMNS", help="Show only these: system,model,speedup."
    ),
]
Breakdown = Annotated[
    bool, typer.Option("--breakdown", help="Add the seconds of each resource as columns.")
]
Of = Annotated[
    str, typer.Option("--of", metavar="COLUMN", help="The column that is asked about.")
]
Out = Annotated[
    str,
    typer.Option(
        "--output-file",
        "-o",
        metavar="FILE",
        help="Write FILE.csv, .jsonl or .parquet, or for readers .tex, .md or .json, and the "
        "sources of its numbers beside it; compare and sweep also draw FILE.pdf, .svg or .png.",
    ),
]
