"""The mapping solvers against each other: exact, brute force, MILP, greedy, in batches."""

from dataclasses import replace

import numpy as np
import pulp
import pytest

from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables, Three
from nearkv.solvers.mapping.checks import brute, milp
from nearkv.solvers.mapping.exact import exact
from nearkv.solvers.mapping.policies import greedy, major, pin
from nearkv.solvers.mapping.tables import HeadMapping, bytes_used, evaluate
from nearkv.sweeps.evaluate.columns import table
from nearkv.sweeps.study.study import Study


def instance(rng: np.random.Generator, units: int, case: int) -> HeadTables:
    """Random times without any shape, random monotone bytes, capacities that bind five ways."""
    a, q, f = (rng.random(units + 1) * rng.uniform(0.1, 3.0) for _ in range(3))
    hbm, lpddr = [], []
    for sublayer in range(3):
        # fc's units are alike; a KV group cut in two is held on both sides, so the bytes of both
        # memories may add to more than the whole
        step = rng.integers(1, 20, units) if sublayer < 2 else np.full(units, rng.integers(1, 20))
        up = np.concatenate([[0], np.cumsum(step)])
        down = up[-1] - up + (rng.integers(0, 3, units + 1) if sublayer < 2 else 0)
        hbm.append(up.astype(float))
        lpddr.append(np.minimum.accumulate(down).astype(float))
    total = sum(float(table[-1]) for table in hbm)
    shares = {0: (1.1, 1.1), 1: (0.4, 1.2), 2: (1.2, 0.4), 3: (0.55, 0.5), 4: (0.3, 0.4)}[case]
    hbm_headroom, lpddr_headroom = (
        np.asarray(np.floor(total * share * rng.uniform(0.9, 1.1))) for share in shares
    )
    on_hbm, on_lpddr = (hbm[0], hbm[1], hbm[2]), (lpddr[0], lpddr[1], lpddr[2])
    return HeadTables(
        (a, q, f), on_hbm, on_lpddr, hbm_headroom, lpddr_headroom, np.asarray(float(units))
    )


def stacked(tables: list[HeadTables]) -> HeadTables:
    def three(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, q, f = (np.stack([getattr(t, name)[i] for t in tables]) for i in range(3))
        return a, q, f

    rooms = (
        np.stack([getattr(t, name) for t in tables])
        for name in ("hbm_headroom", "lpddr_headroom", "units")
    )
    return HeadTables(three("seconds"), three("hbm"), three("lpddr"), *rooms)


def missing(tables: HeadTables, mapping: HeadMapping) -> float:
    """Bytes that HBM, LPDDR or both together lack, whatever is the most [B]."""
    hbm, lpddr = bytes_used(tables, mapping)
    of_hbm = float(np.reshape(hbm - tables.hbm_headroom, ()))
    of_lpddr = float(np.reshape(lpddr - tables.lpddr_headroom, ()))
    return max(of_hbm, of_lpddr, of_hbm + of_lpddr)


def check_as_good(tables: HeadTables, mapping: HeadMapping, best: HeadMapping) -> None:
    """As fast as the best; where nothing fits, with as few bytes missing as many may have."""
    assert bool(mapping.ok) == bool(best.ok)
    if best.ok:
        assert mapping.seconds == pytest.approx(best.seconds, rel=1e-9)
    else:
        assert missing(tables, mapping) == pytest.approx(missing(tables, best), rel=1e-9)
        assert missing(tables, mapping) > 0


@pytest.mark.slow
def test_exact_is_brute_force_is_milp_on_random_instances() -> None:
    rng = np.random.default_rng(7)
    infeasible = lpddr_cuts = 0
    for i in range(200):
        tables = instance(rng, int(rng.integers(1, 9)), i % 5)
        best, all_, program = exact(tables), brute(tables), milp(tables)
        assert best.seconds == all_.seconds or not best.ok
        check_as_good(tables, best, all_)
        check_as_good(tables, program, all_)
        infeasible += not best.ok
        free = exact(replace(tables, lpddr_headroom=np.asarray(np.inf)))
        lpddr_cuts += bool(best.ok) and bool(free.seconds < best.seconds)
    assert infeasible > 20
    assert lpddr_cuts > 20


def test_a_batch_of_points_is_its_points_one_by_one() -> None:
    rng = np.random.default_rng(3)
    single = [instance(rng, 6, i % 5) for i in range(40)]
    for method in (exact, greedy):
        together = method(stacked(single))
        for i, tables in enumerate(single):
            alone = method(tables)
            assert [n[i] for n in map(np.asarray, together.units)] == list(alone.units)
            assert np.asarray(together.seconds)[i] == alone.seconds
            assert np.asarray(together.ok)[i] == alone.ok


def test_batches_are_cut_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    tables = stacked([instance(rng, 5, i % 5) for i in range(23)])
    whole = exact(tables)
    monkeypatch.setattr("nearkv.solvers.mapping.exact._PAIRS_AT_ONCE", 4 * 36)
    np.testing.assert_array_equal(exact(tables).seconds, whole.seconds)


def test_tables_that_do_not_vary_serve_all_points() -> None:
    rng = np.random.default_rng(11)
    one = instance(rng, 6, 1)
    rooms = np.linspace(0, float(one.hbm_headroom) * 2, 9).round()
    swept = exact(replace(one, hbm_headroom=rooms))
    expected = [brute(replace(one, hbm_headroom=np.asarray(room))).seconds for room in rooms]
    np.testing.assert_array_equal(swept.seconds, expected)
    assert np.all(np.diff(np.where(swept.ok, swept.seconds, np.inf)[np.asarray(swept.ok)]) <= 0)


@pytest.mark.parametrize("case", range(6))
def test_points_that_differ_in_seconds_alone_are_solved_as_alone(case: int) -> None:
    """Stated units of one sub-layer, or chips that are swept, change no table of bytes."""
    rng = np.random.default_rng(13 + case)
    other = instance(rng, 6, case % 5)
    if case == 5:  # little HBM beside an LPDDR that holds everything
        other = replace(other, hbm_headroom=np.asarray(20.0), lpddr_headroom=np.asarray(9e9))
    one = with_attention_of(other, other, 0.3)  # parts of a byte, so that pairs are tried
    swept = [replace(one, seconds=instance(rng, 6, 0).seconds) for _ in range(9)]
    swept += [pin(one, which, 3) for which in range(3)]
    seconds = stacked(swept).seconds
    for tables in (replace(one, seconds=seconds), points_of_one_sublayer(one, seconds)):
        best = exact(tables)
        for i in range(len(swept)):
            own = [table[i] if table.ndim == 2 else table for table in tables.seconds]
            alone = brute(replace(one, seconds=(own[0], own[1], own[2])))
            assert np.asarray(best.ok)[i] == alone.ok
            assert np.asarray(best.seconds)[i] == alone.seconds or not alone.ok


def points_of_one_sublayer(one: HeadTables, seconds: Three) -> HeadTables:
    """Design points of which only the seconds of attention differ."""
    return replace(one, seconds=(seconds[0], *one.seconds[1:]))


@pytest.mark.parametrize(("byte", "share"), [(1.0, 1.0), (0.3, 1.0), (1.0, 0.25)])
def test_points_that_share_qkv_and_fc_are_solved_as_alone(byte: float, share: float) -> None:
    """Rooms of whole bytes are shared, those of parts of a byte are not: the answers are alike.

    In a quarter of HBM, not even the roomiest point holds all of qkv and fc.
    """
    rng = np.random.default_rng(17)
    for _ in range(6):
        one = instance(rng, 6, 0)
        own = [instance(rng, 6, i % 5) for i in range(20)]
        small = [replace(other, hbm_headroom=np.floor(share * other.hbm_headroom)) for other in own]
        single = [with_attention_of(other, one, byte) for other in small]
        together = exact(sharing_qkv_and_fc(single))
        for i, tables in enumerate(single):
            alone, best = exact(tables), brute(tables)
            assert [np.asarray(n)[i] for n in together.units] == list(alone.units)
            assert np.asarray(together.ok)[i] == best.ok
            assert np.asarray(together.seconds)[i] == best.seconds or not best.ok
            check_as_good(tables, alone, best)


def with_attention_of(other: HeadTables, one: HeadTables, byte: float) -> HeadTables:
    """The attention and the rooms of one instance beside the qkv and fc of another."""

    def sizes(own: Three, shared: Three) -> Three:
        return byte * own[0], byte * shared[1], byte * shared[2]

    return replace(
        one,
        seconds=(other.seconds[0], *one.seconds[1:]),
        hbm=sizes(other.hbm, one.hbm),
        lpddr=sizes(other.lpddr, one.lpddr),
        hbm_headroom=byte * (other.hbm_headroom + 0.5),
        lpddr_headroom=byte * (other.lpddr_headroom + 0.5),
    )


def sharing_qkv_and_fc(tables: list[HeadTables]) -> HeadTables:
    """Design points of one table of qkv and one of fc."""
    points, first = stacked(tables), tables[0]
    return replace(
        points,
        seconds=(points.seconds[0], *first.seconds[1:]),
        hbm=(points.hbm[0], *first.hbm[1:]),
        lpddr=(points.lpddr[0], *first.lpddr[1:]),
        units=first.units,
    )


def test_a_grid_of_batches_and_contexts_is_solved_as_its_points() -> None:
    """Each batch has tables of qkv and fc that all its contexts share."""
    rng = np.random.default_rng(19)
    batches = []
    for _ in range(3):
        one = instance(rng, 5, 0)
        own = [instance(rng, 5, i % 5) for i in range(9)]
        batches.append([with_attention_of(other, one, 1.0) for other in own])
    rows = [sharing_qkv_and_fc(row) for row in batches]
    grid = stacked(rows)

    def beside(three: Three) -> Three:
        return three[0], three[1][:, None], three[2][:, None]

    best = exact(
        replace(
            grid,
            seconds=beside(grid.seconds),
            hbm=beside(grid.hbm),
            lpddr=beside(grid.lpddr),
            units=grid.units[:, None],
        )
    )
    expected = [[exact(tables).seconds for tables in row] for row in batches]
    np.testing.assert_array_equal(best.seconds, expected)
    for row in batches:
        for tables in row:
            check_as_good(tables, exact(tables), brute(tables))


def test_greedy_is_algorithm_1_by_hand() -> None:
    # attention is fastest at 2 of 2 and takes all of HBM's 10 bytes, though qkv would gain more
    seconds = (np.array([3.0, 2.0, 1.0]), np.array([9.0, 5.0, 1.0]), np.array([2.0, 1.5, 1.0]))
    capacity_check = (np.array([0.0, 5.0, 10.0]),) * 3
    rest = (np.array([10.0, 5.0, 0.0]),) * 3
    tables = HeadTables(
        seconds, capacity_check, rest, np.asarray(10.0), np.asarray(100.0), np.asarray(2.0)
    )
    assert greedy(tables).units == (2, 0, 0)
    assert exact(tables).units == (0, 2, 0)
    assert greedy(tables).seconds == 12.0
    assert exact(tables).seconds == 6.0
    assert bytes_used(tables, exact(tables)) == (10.0, 20.0)


def test_greedy_that_finds_no_place_fills_hbm_and_keeps_stated_units() -> None:
    """2 of 4 heads of 5 B fit 12 B; what they leave holds 2 units of qkv, and none of fc."""
    ones = np.ones(5)
    five, one = 5.0 * np.arange(5.0), np.arange(5.0)
    tables = HeadTables(
        seconds=(ones, ones, ones),
        hbm=(five, one, one),
        lpddr=(five[::-1], one[::-1], one[::-1]),
        hbm_headroom=np.asarray(12.0),
        lpddr_headroom=np.asarray(0.0),
        units=np.asarray(4.0),
    )
    assert greedy(tables).units == (2, 2, 0)
    assert greedy(pin(tables, 0, 1)).units == (1, 4, 3)
    assert not greedy(tables).ok
    assert major(0, tables).units[0] == 2
    few = replace(tables, units=np.asarray(1.0))  # a model with fewer heads than the tables
    assert major(0, few).units[0] == 1
    assert major(0, replace(tables, hbm_headroom=np.asarray(-1.0))).units[0] == 0


def test_nothing_that_fits_beats_the_optimum_and_policies_obey_their_pin() -> None:
    rng = np.random.default_rng(13)
    for i in range(60):
        tables = instance(rng, 7, i % 4)
        best = exact(tables)
        for policy in (greedy(tables), *(major(which, tables) for which in range(3))):
            assert not policy.ok or policy.seconds >= best.seconds
        for which in range(3):
            most = int(np.flatnonzero(tables.hbm[which] <= tables.hbm_headroom)[-1])
            assert major(which, tables).units[which] == most
            assert (
                tables.hbm[which][1] > tables.hbm_headroom
                or exact(pin(tables, which, 1)).units[which] == 1
            )


def test_where_nothing_fits_the_answer_says_so_and_stays_finite() -> None:
    tables = instance(np.random.default_rng(1), 8, 4)
    tables = replace(tables, hbm_headroom=np.asarray(3.0), lpddr_headroom=np.asarray(3.0))
    for method in (exact, brute, greedy, milp):
        mapping: HeadMapping = method(tables)
        assert not mapping.ok
        assert np.isfinite(mapping.seconds)


def test_where_nothing_fits_stated_units_stay_and_the_fewest_bytes_are_missing() -> None:
    """4 heads of 10 B and 4 B of fc in 12 and 20 B.

    2 heads on HBM lack 8 B there and 4 B on LPDDR, 12 B together; 1 head leaves HBM 2 B, which two
    units of fc fill, so that LPDDR lacks 12 B.
    """
    bytes_of = 10.0 * np.arange(5.0)
    nothing = np.zeros(5)
    tables = HeadTables(
        seconds=(nothing, nothing, nothing),
        hbm=(bytes_of, nothing, np.arange(5.0)),
        lpddr=(bytes_of[::-1], nothing, np.arange(5.0)[::-1]),
        hbm_headroom=np.asarray(12.0),
        lpddr_headroom=np.asarray(20.0),
        units=np.asarray(4.0),
    )
    assert missing(tables, exact(tables)) == 12
    all_on_hbm = pin(tables, 0, 4)
    assert exact(all_on_hbm).units == (4, 0, 0)
    assert missing(tables, exact(all_on_hbm)) == 28  # 40 B in 12
    both = pin(all_on_hbm, 2, 3)
    assert exact(both).units == (4, 0, 3)
    for stated in (tables, all_on_hbm, both):
        check_as_good(stated, exact(stated), brute(stated))
        check_as_good(stated, milp(stated), brute(stated))


def test_evaluate_agrees_with_the_tables() -> None:
    tables = instance(np.random.default_rng(2), 4, 0)
    mapping = evaluate(tables, 1, 2, 3)
    assert mapping.seconds == tables.seconds[0][1] + tables.seconds[1][2] + tables.seconds[2][3]


def test_brute_force_and_milp_take_one_point() -> None:
    tables = stacked([instance(np.random.default_rng(i), 3, 0) for i in range(2)])
    with pytest.raises(ValueError, match="one design point"):
        brute(tables)
    with pytest.raises(Exception, match="one point at a time"):
        milp(tables)


def test_a_solver_that_gives_up_is_not_taken_for_no_mapping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unbounded(problem: pulp.LpProblem, _: object) -> None:
        problem.status = pulp.LpStatusUnbounded

    monkeypatch.setattr(pulp.LpProblem, "solve", unbounded)
    with pytest.raises(RuntimeError, match="HiGHS gave up: Unbounded"):
        milp(instance(np.random.default_rng(1), 4, 0))


def test_layers_that_take_as_long_are_mapped_alike_alone_and_in_a_grid() -> None:
    """Where both sides compute, no layer needs to be on HBM, whatever else is in the grid."""
    names = ("layers_attention", "layers_qkv", "layers_fc", "lpddr_used_gb")
    alone = Study(("naive-granularity",), ("llama3.1-70b",), "16", "2k")
    both = alone.but(context="2k,8k")
    for name in names:
        assert table(alone)[name][0] == table(both)[name][0], name
    assert table(alone)["layers_qkv"][0] == 0
