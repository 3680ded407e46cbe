"""The time algebra: seconds, blame, queues, traffic."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support.spans import leaf, trees

from nearkv.costmodel.algebra.blend import blend
from nearkv.costmodel.algebra.span import (
    Leaf,
    Port,
    Span,
    first_longest,
    overlap,
    pipeline,
    serial,
    stream,
)


def test_serial_adds_and_overlap_takes_the_longest() -> None:
    a, b = leaf("a", 2.0), leaf("b", 3.0)
    assert serial(a=a, b=b).seconds == 5.0
    assert overlap(a=a, b=b).seconds == 3.0


def test_a_resource_that_does_not_work_is_never_busy() -> None:
    for span in (leaf("a", 2.0), 3 * leaf("a", 2.0), serial(x=leaf("a", 2.0))):
        assert span.busy_of("b") == 0


def test_overlap_queues_for_a_shared_resource() -> None:
    both = overlap(x=leaf("a", 2.0), y=serial(first=leaf("b", 1.0), then=leaf("a", 1.5)))
    assert both.seconds == 3.5
    assert both.breakdown() == {"x": 2.0, "y/first": 0.0, "y/then": 1.5}


def test_pipeline_fills_then_follows_the_slowest_stage() -> None:
    line = pipeline(10, a=leaf("a", 1.0), b=leaf("b", 4.0), c=leaf("c", 2.0))
    assert line.seconds == 7 + 9 * 4
    assert pipeline(1, a=leaf("a", 1.0), b=leaf("b", 4.0)).seconds == 5


def test_pipeline_stages_on_one_resource_do_not_overlap() -> None:
    assert pipeline(3, a=leaf("a", 1.0), b=leaf("a", 4.0)).seconds == 15


@given(trees())
def test_breakdown_sums_to_the_seconds(tree: Span) -> None:
    assert sum(tree.breakdown().values()) == pytest.approx(tree.seconds)
    assert sum(tree.attribution().values()) == pytest.approx(tree.seconds)


@given(trees())
def test_no_resource_is_booked_twice(tree: Span) -> None:
    for busy in tree.busy().values():
        assert busy <= tree.seconds * (1 + 1e-12)


@given(trees(), st.floats(0.0, 1.0))
def test_blend_meets_both_ends_and_interpolates_amounts(tree: Span, share: float) -> None:
    doubled = blend(tree, blend(tree, tree, 1.0), share)
    assert doubled.seconds == pytest.approx(tree.seconds)


def test_blend_is_affine_in_every_amount() -> None:
    start = serial(a=leaf("a", 1.0), b=overlap(c=leaf("c", 4.0), d=leaf("d", 0.0)))
    end = serial(a=leaf("a", 3.0), b=overlap(c=leaf("c", 0.0), d=leaf("d", 4.0)))
    assert blend(start, end, 0.0).seconds == start.seconds == 5.0
    assert blend(start, end, 1.0).seconds == end.seconds == 7.0
    assert blend(start, end, 0.5).seconds == 2.0 + 2.0


def test_blend_refuses_trees_that_differ_in_more_than_amounts() -> None:
    with pytest.raises(ValueError, match="changes more than its amount"):
        blend(Leaf("a", "run", 1.0, 1.0, "op"), Leaf("a", "run", 2.0, 2.0, "op"), 0.5)
    with pytest.raises(ValueError, match="different shapes"):
        blend(serial(a=leaf("a", 1.0)), serial(b=leaf("a", 1.0)), 0.5)
    both = {"a": leaf("a", 1.0), "b": leaf("b", 2.0)}
    with pytest.raises(ValueError, match="different shapes"):
        blend(leaf("a", 1.0), serial(a=leaf("a", 1.0)), 0.5)
    # the same parts one after the other and at the same time are 3 s and 2 s, nothing between
    with pytest.raises(ValueError, match="different shapes"):
        blend(serial(**both), overlap(**both), 0.5)
    with pytest.raises(ValueError, match="different shapes"):
        blend(2 * serial(**both), 3 * serial(**both), 0.5)


def test_times_multiply_seconds_and_traffic() -> None:
    layers = np.array([2.0, 4.0]) * serial(read=Port("m", "read", 10.0)(5.0))
    assert list(layers.seconds) == [1.0, 2.0]
    assert list(layers.traffic()["m", "read"]) == [10.0, 20.0]


def test_stream_carries_the_same_bytes_everywhere() -> None:
    sent = stream(6.0, a=Port("a", "read", 2.0), b=Port("b", "move", 3.0))
    assert sent.seconds == 3.0
    assert set(sent.traffic().values()) == {6.0}


def test_infinite_rate_takes_no_time() -> None:
    assert Port("a", "read", np.inf)(5.0).seconds == 0.0


def test_scalars_stay_scalar_and_arrays_broadcast() -> None:
    assert np.ndim(overlap(a=leaf("a", 1.0), b=leaf("b", 2.0)).seconds) == 0
    rows, columns = np.ones((3, 1)), np.ones((1, 4))
    mesh = overlap(a=Port("a", "read", 1.0)(rows), b=Port("b", "read", 1.0)(columns))
    assert np.shape(mesh.seconds) == (3, 4)


def test_work_of_nothing_keeps_the_axes_of_its_design_points() -> None:
    """A knob that only scales a zero is still an axis of the answer."""
    busy = Leaf("gpu.run", "run", 3.0, 1.0, "FLOP")
    none = Leaf("csd.flash", "write", np.zeros((4, 1)), 1.0, "B")
    for span in (serial(run=busy, write=none), serial(write=none, run=busy)):
        assert np.array_equal(span.seconds, np.full((4, 1), 3.0))
    assert np.array_equal(overlap(run=busy, write=none).seconds, np.full((4, 1), 3.0))


def test_a_device_without_work_is_never_active() -> None:
    step = serial(run=Leaf("gpu.run", "run", 3.0, 1.0, "FLOP"))
    assert (step.active_of("gpu"), step.active_of("csd")) == (3.0, 0.0)


def test_a_device_is_active_only_while_it_works_itself() -> None:
    step = serial(run=leaf("gpu.run", 3.0), read=leaf("csd.flash", 2.0))
    assert (step.active_of("gpu"), step.active_of("csd")) == (3.0, 2.0)


def test_each_point_is_attributed_to_its_own_longest_branch() -> None:
    """At four points b, a, both (b counts, named first) and d are longest; c nowhere is."""
    a = Leaf("a", "run", np.array([1.0, 5.0, 4.0, 2.0]), 1.0, "op")
    b = leaf("b", 4.0)
    c = leaf("c", 0.5)
    d = Leaf("d", "run", np.array([3.0, 3.0, 3.0, 9.0]), 1.0, "op")
    parts = (2 * overlap(b=b, a=a, never=serial(c=c), d=d)).breakdown()
    assert np.array_equal(parts["b"], [8.0, 0.0, 8.0, 0.0])
    assert np.array_equal(parts["a"], [0.0, 10.0, 0.0, 0.0])
    assert np.array_equal(parts["d"], [0.0, 0.0, 0.0, 18.0])
    assert not np.any(parts["never/c"])


def test_a_queue_is_attributed_where_it_is_the_longest() -> None:
    """Two parts share a: 2 + x seconds of it are longer than part y, 4 s, from x = 2 on."""
    x = Leaf("a", "run", np.array([1.0, 3.0]), 1.0, "op")
    parts = overlap(y=leaf("b", 4.0), first=leaf("a", 2.0), second=3 * (x * (1 / 3))).breakdown()
    assert np.array_equal(parts["y"], [4.0, 0.0])
    assert np.array_equal(parts["first"], [0.0, 2.0])
    assert parts["second"] == pytest.approx([0.0, 3.0])


def test_attribution_keeps_an_axis_that_moves_no_longest_branch() -> None:
    wide = Leaf("a", "run", np.array([[3.0], [5.0]]), 1.0, "op")
    parts = overlap(a=wide, b=leaf("b", 1.0)).attribution()
    assert np.array_equal(parts["a"], [[3.0], [5.0]])
    assert not np.any(parts["b"])


def test_a_span_that_never_runs_keeps_its_axes() -> None:
    """Searches compare the seconds of one choice with those of another, of the same shape."""
    never = serial(a=leaf("a", 1.0), b=0.0 * Leaf("b", "run", np.ones((3, 1)), 1.0, "op"))
    assert np.shape(never.seconds) == (3, 1)
    assert np.all(never.seconds == 1.0)


@pytest.mark.parametrize("more", [0.0, 1e-13, -1e-13])
def test_of_times_that_differ_by_rounding_the_first_counts(more: float) -> None:
    """A share solved for balance leaves both sides equal but for the last digits."""
    one, other = leaf("a", 1.0), leaf("b", 1.0 + more)
    assert overlap(one=one, other=other).attribution() == {"a": 1.0, "b": 0.0}
    assert overlap(other=other, one=one).attribution() == {"b": 1.0 + more, "a": 0.0}
    assert first_longest([0.5, 1.0, 1.0 + more]) == 1
    assert first_longest([0.5, 1.0, 1.0 + 1e-6]) == 2
