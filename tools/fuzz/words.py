"""Words and files that no user means and any user may give."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

HOSTILE = (
    "-1",
    "0",
    "1",
    "2",
    "0.5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "1e-320",
    "9.3e18",
    "9" * 400,
    "0x10",
    "1_000",
    "１６",
    "64k,64k",
    ":",
    "1:",
    "1:10:+0",
    "10:1:x2",
    "1:100:x1",
    "1:1e9:+1",
    "1:2:3:4",
    ",,,",
    "=",
    "a=b=c",
    "csd.count=0",
    "csd.count=4,8",
    "host.memory=1e10PB",
    "gpu.flops=inf",
    "gpu.hbm=0GB/s",
    "derate.pcie=2",
    "alpha=auto",
    "alpha=2",
    "alpha=paper",
    "ssd_weights=auto",
    "writeback=naive",
    "nothing=1",
    "-5GB",
    "5XB",
    "None",
    "[1,2]",
    "typo",
    "\x1b[31mred",
    "\udce9",
    "é漢",
    " ",
    "x" * 5000,
    "--",
    "/dev/null",
    "/",
    "hilos",
    "l3",
    "h2m2",
    "opt-66b",
    "mixtral-8x7b",
    "deepseek-v3",
    "dolphin",
    "step_ms",
    "endurance_requests",
    "system,model,step_ms",
    "json",
    "csv",
    "milp",
    "simulate",
    "throughput_tok_s=1",
    "step_ms<=1",
    "step_ms>=nan",
)
"""Values that options may be given."""

TEXTS = {
    "empty.toml": "",
    "broken.toml": "systems = [",
    "types.toml": 'systems = 3\nmodels = {a = 1}\nbatch = [[1]]\ncite = ["x"]\n',
    "deep.toml": "a = " + "[" * 200 + "]" * 200,
    "digits.toml": 'systems = ["hilos"]\nmodels = ["opt-30b"]\nbatch = "' + "9" * 400 + '"\n',
    "keys.toml": 'systems = ["hilos"]\nmodels = ["opt-30b"]\nnothing = 1\n[set]\n"x.y" = "1"\n',
    "without.toml": 'base = "hilos-a100"\nwithout = [["a"]]\n',
    "base.toml": 'base = "base.toml"\n',
    "kind.toml": 'kind = ["x"]\ntitle = 3\n',
    "empty.csv": "",
    "head.csv": "input_tokens,output_tokens\n",
    "numbers.csv": "input_tokens,output_tokens\n-1,nan\n1e400,0\n",
    "ragged.csv": "input_tokens,output_tokens\n1,2,3\n4\n",
    "formula.csv": "system,model,batch,context,output,step_ms\n=1+1,@x,1,1,1,1\n",
    "quoted.csv": 'input_tokens,output_tokens\n"1\n',
    "empty.json": "{}",
    "heads.json": '{"model_type": "opt", "hidden_size": 100, "num_attention_heads": 3}',
    "nan.json": '{"hidden_size": NaN}',
    "list.json": "[1]",
    "deep.json": "[" * 5000,
}


def write_files(folder: Path, random: Random) -> list[str]:
    """Hostile files of all kinds, and their paths."""
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    for kind in ("toml", "csv", "json", "parquet"):
        (folder / f"bytes.{kind}").write_bytes(random.randbytes(300))
        (folder / f"latin.{kind}").write_bytes("# Jérôme\n".encode("latin-1"))
        (folder / f"mark.{kind}").write_bytes(b"\xef\xbb\xbf" + b"a = 1\n")
        (folder / f"folder.{kind}").mkdir()
        (folder / f"loop.{kind}").symlink_to(folder / f"loop.{kind}")
        (folder / f"zero.{kind}").symlink_to("/dev/zero")
        os.mkfifo(folder / f"pipe.{kind}")
        with (folder / f"huge.{kind}").open("wb") as sparse:
            sparse.truncate(3 * 2**30)
    return sorted(str(path) for path in folder.iterdir())
