"""Numbers stay what they were until a commit says which changes and why."""

from __future__ import annotations

from golden.pins import HEADER, PINNED, PINS, differences, read


def test_every_pinned_system_answers_what_is_pinned() -> None:
    """A formula that changes on purpose changes `pins.csv` in its own commit: `make golden`."""
    changed = list(differences(read(PINS)))
    assert not changed, f"{len(changed)} values, first: {changed[:5]}"


def test_pins_are_few_enough_to_read() -> None:
    pinned = read(PINS)
    assert 0 < len(pinned) <= 600
    assert {key[-1] for key in pinned} <= set(PINNED)
    assert PINS.read_text().startswith(",".join(HEADER))


def test_a_system_without_pins_needs_none() -> None:
    pinned = {key: value for key, value in read(PINS).items() if key[0] == "hilos"}
    assert not list(differences(pinned))


def test_a_number_that_differs_is_named() -> None:
    key = ("hilos", "small", "step_ms")
    (line,) = differences({key: "1.0", ("hilos", "small", "status"): "ok"})
    assert line.startswith("hilos small step_ms: 1.0, now ")
