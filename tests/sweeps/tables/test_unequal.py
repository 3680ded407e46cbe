"""Inequalities of rivals are told once, and only those that a reader does not see."""

from __future__ import annotations

from typing import Any

from nearkv.sweeps.tables.unequal import unequal

NEAR = {"machine": "1 a, 16 csd", "attention_on": "csd", "bits": "16", "cost_usd": 9e4}
PLAIN = {"machine": "1 a", "attention_on": "gpu", "bits": "16", "cost_usd": 1e4}
SIBLING = "a: rates as on b"


def rows(*notes: str) -> list[dict[str, Any]]:
    near = [{"system": "near", **NEAR, "power_w": watts} for watts in (500.0, 600.0)]
    plain = [{"system": "plain", **PLAIN, "power_w": watts} for watts in (400.0, None)]
    return [{**row, "note": note} for row, note in zip(near + plain, notes, strict=True)]


def test_each_rival_has_a_sentence_of_all_that_differs() -> None:
    told = unequal(rows(f"common; {SIBLING}", "common", "on x against y; common", "common"), ())
    assert told == [
        "near: 1 a, 16 csd; attention on csd; 90,000 USD; 500 to 600 W.",
        "plain: 1 a; attention on gpu; 10,000 USD; 400 W.",
    ]


def test_notes_of_one_rival_are_told_and_what_is_shown_is_not() -> None:
    told = unequal(rows("late", "the CPU attends", "", ""), ("machine", "cost_usd", "attention_on"))
    assert told == ["near: late; the CPU attends; 500 to 600 W.", "plain: 400 W."]


def test_equal_rivals_need_no_sentence() -> None:
    assert unequal(rows("", "", "", "")[:2], ()) == []
    assert unequal(rows("", "", "", ""), ("machine", "attention_on", "bits", "note")) == []
