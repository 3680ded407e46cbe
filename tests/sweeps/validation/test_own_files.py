"""Files that a user writes: a bad one of claims or of runs is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nearkv.hardware.errors import InputError
from nearkv.sweeps.validation.calibration import fit_factors
from nearkv.sweeps.validation.evidence import measured
from nearkv.sweeps.validation.own_files import read_claims, read_runs

HEADER = "id,low,unit,metric,system,model,batch,context,knob,over,over_knob,take"


STEP = "id,low,unit,metric,system"


MINE = f'{HEADER}\nmine,3,x,decode_tok_s,hilos,opt-66b,16,"32k,64k",alpha=0.5,hilos,alpha=0,mean\n'


RUN = "system,model,batch,context,output_tokens,step_ms"


GOOD = "h2o,qwen-7b,2,2k,64,57\nh2o,qwen-7b,4,2k,64,110\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,low\nx,1\n", "has no column 'unit'"),
        (f"{STEP},colour\nmine,72,ms,step_ms,hilos,red\n", "unknown column 'colour'"),
        (f"{HEADER}\n", "holds no lines below a header"),
        (MINE.replace(",mean", ",median"), "line 2: unknown take 'median'; did you mean"),
        (MINE.replace("mine,3", "mine,three"), "line 2, low: 'three' is not a number"),
        (MINE.replace("mine,3", "mine,nan"), "line 2, low: 'nan' must be a finite number"),
        (MINE.replace("mine,3", ",3"), "line 2: id is blank"),
        (MINE.replace(",x,", ",GB,"), "line 2, unit: 'GB' does not measure a ratio"),
        (f"{STEP}\nmine,72,GB,step_ms,hilos\n", "'GB' does not measure step_ms; write ms"),
        (f"{STEP}\nmine,72,GFLOPS,step_ms,hilos\n", "line 2, unit: 'GFLOPS' does not measure"),
        (f"{STEP}\nmine,72,banana,step_ms,hilos\n", "line 2, unit: 'banana' does not measure"),
        (f"{STEP}\nmine,72,ms,decode_tok_s,hilos\n", "'ms' does not measure decode_tok_s"),
        (
            f"{STEP}\nmine,4,GB,number,hilos-a100:gpu.bandwidth\n",
            "measure hilos-a100:gpu.bandwidth; write",
        ),
        (f"{STEP}\nmine,4,GB,number,hilos-a100:gpu.bandwith\n", "did you mean 'bandwidth'"),
        (f"{STEP}\nmine,4,GB,number,hilos-a100:gpx.memory\n", "unknown part 'gpx'"),
        (f"{STEP}\nmine,72,s,batch_run,hilos\n", "'s' does not measure batch_run; write x or"),
        (
            "id,low,high,unit,metric,system\nmine,72,70,ms,step_ms,hilos\n",
            "line 2: low, 72, is above high, 70",
        ),
        (f"{HEADER}\nmine,3,x\n", "line 2 has 3 cells for 12 columns"),
        (MINE + MINE.partition("\n")[2], "the id 'mine' is there twice"),
    ],
)
def test_a_bad_file_of_claims_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    (path := tmp_path / "my.csv").write_text(text)
    with pytest.raises(InputError) as problem:
        read_claims(path)
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{RUN}\n", "holds no lines below a header"),
        ("", "lines below a header"),
        ('{"backend": "sglang", "completed": 100}\n', "holds no lines below a header; write CSV"),
        (
            "system,model,batch,context,step_ms\nh2o,qwen-7b,2,2k,57\n",
            "has no column 'output_tokens'",
        ),
        (
            "system,model,batch,context,output_tokens\nh2o,qwen-7b,2,2k,64\n",
            "needs exactly one measured column; such as",
        ),
        (
            f"{RUN},total_s\nh2o,qwen-7b,2,2k,64,57,3\n",
            "needs exactly one measured column; it has step_ms, total_s",
        ),
        (f"{RUN},colour\nh2o,qwen-7b,2,2k,64,57,red\n", "unknown column 'colour'"),
        (f"{RUN},batch\nh2o,qwen-7b,2,2k,64,57,2\n", "a column is there twice"),
        (f"{RUN}\nh2o,qwen-7b,2,2k,64,fast\n", "line 2, step_ms: 'fast' is not a number"),
        (
            f"{RUN}\nh2o,qwen-7b,2,2k,64,-3\n",
            "line 2, step_ms: '-3' must be a finite number above 0",
        ),
        (f"{RUN}\nh2o,qwen-7b,2,2k,64,0\n", "'0' must be a finite number above 0"),
        (f"{RUN}\nh2o,qwen-7b,2,2k,64,nan\n", "'nan' must be a finite number above 0"),
        (f"{RUN}\nh2o,qwen-7b,2,2k,64\n", "line 2 has 5 cells for 6 columns"),
        (f"{RUN}\nh2o,qwen-7b,half,2k,64,57\n", "line 2, batch: 'half' must be a whole number"),
        (f"{RUN}\nh3o,qwen-7b,2,2k,64,57\n", "line 2: unknown system 'h3o'; did you mean 'h2o'"),
        (
            f"{RUN}\nh2o,qwen-8b,2,2k,64,57\n",
            "line 2: unknown model 'qwen-8b'; did you mean 'qwen",
        ),
        (f"{RUN},knob\n{GOOD.splitlines()[0]},alpha=1\n", "line 2: h2o: unknown knob 'alpha'"),
        (
            f"{RUN},knob\n{GOOD.splitlines()[0]},placement\n",
            "line 2: knob 'placement': write it as NAME=VALUE",
        ),
        (
            f'{RUN},set\n{GOOD.splitlines()[0]},"ssd.read=2GB/s,3GB/s"\n',
            "line 2: a run has one value of each knob",
        ),
        (
            f"{RUN}\nh2o,opt-66b,2,2k,64,57\n",
            "line 2: h2o has no answer there: host memory is short; correct the row",
        ),
        (
            f"{RUN}\nhilos,deepseek-v3.2,2,2k,64,57\n",
            "line 2: hilos has no answer there: attention to tokens that an indexer chooses",
        ),
        (
            f"{RUN}\nhilos,opt-66b,2,2k,64,57\nh2o,qwen-7b,2,2k,64,57\n",
            "line 3: platform 'hilos-a100'",
        ),
        (f"{RUN}\nh2o,qwen-7b,2,2k,64,1e-310\n", "'1e-310' is beyond any machine"),
        (
            f"{RUN}\n{GOOD.splitlines()[0]}\n",
            "1 row cannot determine 1 factor (ssd.write); give more rows",
        ),
    ],
)
def test_a_bad_file_of_runs_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    (path := tmp_path / "my.csv").write_text(text)
    with pytest.raises(InputError) as problem:
        fit_factors(measured(str(path)))
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le"])
def test_a_table_in_another_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    """Spreadsheets may write these; UTF-16 without a mark is UTF-8 with zeros between letters."""
    file = tmp_path / "runs.csv"
    file.write_text(f"{RUN},Ger\u00e4t\n{GOOD}", encoding=encoding)
    for read in (read_claims, read_runs):
        with pytest.raises(InputError, match="not a CSV file in UTF-8; save it as one"):
            read(file)


LLAMA_BENCH = """system,model,set,build_commit,model_type,n_prompt,n_gen,n_depth,avg_ns,avg_ts
gpu,llama3.1-8b,precision.weight=q4_0,4c7e989,llama 8B Q4_0,512,0,0,1,9000
gpu,llama3.1-8b,precision.weight=q4_0,4c7e989,llama 8B Q4_0,512,0,8192,1,6000
gpu,llama3.1-8b,precision.weight=q4_0,4c7e989,llama 8B Q4_0,0,128,8192,1,150.5
"""


def test_a_table_of_llama_bench_is_read_once_it_names_system_and_model(tmp_path: Path) -> None:
    (path := tmp_path / "bench.csv").write_text(LLAMA_BENCH)
    runs = [
        (run.metric, run.context, run.output_tokens, run.low, run.knob) for run in read_runs(path)
    ]
    assert runs == [
        ("prefill_tok_s", "512", "1", "9000", ""),
        ("prefill_tok_s", "512", "1", "6000", "prefix=8192"),
        ("decode_tok_s", "8192", "128", "150.5", ""),
    ]
    evidence = measured(str(path), "rtx-4090-box")
    assert np.isfinite(evidence.predict({})).all()
    path.write_text(LLAMA_BENCH.replace("system,model,", "a,b,"))
    with pytest.raises(InputError, match="has no column 'system' and no 'model'; it needs"):
        read_runs(path)
    path.write_text(LLAMA_BENCH.replace("0,128,8192", "512,128,0"))
    with pytest.raises(InputError, match="line 4: n_prompt 512 and n_gen 128 are no test"):
        read_runs(path)


def test_a_line_of_sglang_is_a_run_of_prompts_and_one_of_steps(tmp_path: Path) -> None:
    (path := tmp_path / "one_batch.csv").write_text(
        "system,model,run_name,batch_size,input_len,output_len,prefill_latency,prefill_throughput,"
        "median_decode_latency,median_decode_throughput\n"
        "gpu,llama3.1-8b,default,16,1024,128,0.5,32768,0.01,1600\n"
    )
    runs = [(run.metric, run.batch, run.context, run.low, run.id) for run in read_runs(path)]
    assert runs == [
        ("prefill_tok_s", "16", "1024", "32768", "line 2 prefill_throughput"),
        ("decode_tok_s", "16", "1024", "1600", "line 2 median_decode_throughput"),
    ]
