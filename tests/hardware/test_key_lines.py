"""The line of a key in a file: exact where a file is normal, none where it is not clear."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.errors import InputError
from nearkv.hardware.lines import keys_named, line_of_failure, line_of_json_key, line_of_key
from nearkv.hardware.own import problems
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.study.study_files import either

FILE = '''# count = 1, in a comment
title = """
count = 2
[gpu]
"""
base = "count"

[gpu] # count
memory = [
  1, # count
  2,
]
"count" = 3
link.count = 4

[csd]
read = { value = 1, unit = "count" }

count = 5
'''


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["title"], 2),
        (["base"], 6),
        (["gpu"], 8),
        (["gpu", "memory"], 9),
        (["gpu", "count"], 13),
        (["gpu", "link", "count"], 14),
        (["csd"], 16),
        (["csd", "read", "unit"], 17),
        (["csd", "count"], 19),
        (["count"], None),
        (["csd", "memory"], None),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_key_is_told_from_comments_strings_and_keys_of_other_tables(
    keys: list[str], line: int | None, newline: str
) -> None:
    assert line_of_key(FILE.replace("\n", newline), keys) == line


STATEMENTS = st.sampled_from(
    ["# a comment", "", "{} = 1", "{} = [\n1,\n\n2]", '{} = """\na = 1\n"""', "{} = {{ a = 1 }}"]
)


@settings(max_examples=50)
@given(st.lists(STATEMENTS, min_size=1, max_size=12))
def test_every_key_of_a_random_file_has_the_line_it_was_written_on(statements: list[str]) -> None:
    lines: dict[str, int] = {}
    written: list[str] = []
    for number, statement in enumerate(statements):
        key = f"k{number}"
        if "{}" in statement:
            lines[key] = len(written) + 1
        written += statement.format(key).split("\n")
    text = "\n".join(written)
    assert list(tomllib.loads(text)) == list(lines)
    assert {key: line_of_key(text, [key]) for key in lines} == lines


def test_a_long_file_and_a_name_in_many_lines_are_left_without_a_line() -> None:
    """Each look reads the text from its beginning, so their number is bounded."""
    assert line_of_key("# x\n" * 40 + "x = 1", ["x"]) == 41
    assert line_of_key("# x\n" * 60 + "x = 1", ["x"]) is None
    assert line_of_key("# y\n" * 100_000 + "x = 1", ["x"]) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb =\nc = 2\n", 2),
        ("a = 1\nb = [\n", 2),
        ("a = 1\n\nb = " + "9" * 5000 + "\nc = 1\n" * 3, 3),
        ("a = 1\nb = 1\nc = " + "[" * 5000 + "\n\n", 3),
    ],
)
def test_what_cannot_be_read_has_the_line_where_reading_fails(text: str, line: int) -> None:
    with pytest.raises((ValueError, RecursionError)) as caught:
        tomllib.loads(text)
    assert line_of_failure(text, caught.value) == line


@pytest.mark.parametrize(
    ("problem", "keys"),
    [
        ("gpu: count: must be whole", ("gpu", "count")),
        ("gpu: needs a count of its part", ("gpu",)),
        ("gpu: unknown key 'cuont'; valid are: count", ("gpu", "cuont")),
        ("gpu: unknown key 'flops'; valid are: count", None),
        ("without = [] must list roles", ("without",)),
        ("a gpu needs memory", ()),
    ],
)
def test_a_sentence_names_the_key_that_it_is_about(
    problem: str, keys: tuple[str, ...] | None
) -> None:
    table = {"gpu": {"count": 1, "cuont": 2}, "without": []}
    assert keys_named(problem, table) == keys


def test_a_key_of_a_config_that_stands_there_twice_has_no_line() -> None:
    text = '{\n "a": 1,\n "text": {"b": 2},\n "vision": {"b" : 3}\n}'
    assert [line_of_json_key(text, key) for key in ("a", "b", "c")] == [2, None, None]


def test_the_line_is_that_of_the_file_at_fault(tmp_path: Path) -> None:
    """A base of a platform, a part beside it and a model's config name their own lines."""
    base = tmp_path / "base.toml"
    base.write_text('base = "hilos-a100"\n\n[gpu]\ncount = -1\n')
    own = tmp_path / "own.toml"
    own.write_text(f'title = "Own"\nbase = "{base}"\n')
    with pytest.raises(InputError, match=r"base\.toml, line 4: gpu: count: "):
        load_platform(str(own))
    config = tmp_path / "config.json"
    sizes = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": "two"}
    config.write_text(json.dumps(sizes, indent=1))
    with pytest.raises(InputError, match=r"config\.json, line 4: num_hidden_layers must be"):
        load_llm(str(config))


def test_a_check_names_the_line_of_all_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "hilos-a100"\n[gpu]\ncount = -1\n[csd]\ncount = 0.5\nread = "1 GHz"\n')
    sentences = problems(file)
    lines = [sentence.partition(": ")[0].rpartition(" ")[2] for sentence in sentences]
    assert lines == ["3", "5", "6"]


STUDY = 'systems = ["hilos"]\nmodel = ["opt-66b"]\n'


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ('context = "abc"', "3: context: 'abc' must be a whole number"),
        ("batch = [4, -3]", "3: batch: '-3' must be"),
        ('[set]\n"csd.count" = "many"', "4: set: csd.count: 'many' is not a number"),
        ("[knob]\n# a comment\nalpha = 2", "5: knob: alpha: '2' does not fit"),
        ('platform = "hilos-z"', "3: platform: unknown platform 'hilos-z'"),
        ('[part]\ngpu = "b2000"', "3: part: unknown part 'b2000'"),
    ],
)
def test_a_study_that_cannot_be_evaluated_names_the_line(
    tmp_path: Path, lines: str, sentence: str
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY + lines)
    with pytest.raises(InputError) as refusal:
        either(str(path), Study((), ()))
    assert str(refusal.value).startswith(f"{path}, line {sentence}")
