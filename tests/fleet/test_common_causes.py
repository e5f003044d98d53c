"""What ill runs share is found, told once and with its numbers; what chance shares, or all share, is not."""

import random
from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from benchmarks.fleet_causes import fleets
from ckaudit.contract.schema.fleet import Curve, FleetFinding, FleetRun
from ckaudit.fleet.common_causes import common_causes


def ill(step: int | None = None, code: str = "NUM001") -> list[FleetFinding]:
    return [FleetFinding(code=code, name="nonfinite", severity="sev0", message="it is NaN", first_step=step)]


def run(number: int, findings: Iterable[FleetFinding] = (), **facts: object) -> FleetRun:
    names = {name.replace("__", "."): str(value) for name, value in facts.items()}
    own = {"name": f"r{number}", "start": str(1_780_000_000 + 977 * number), "seed": str(number * 7919 % 1000)}
    return FleetRun(
        run=f"runs/{number:04d}", status="audited", judged="all", findings=list(findings), facts=own | names, last_step=9_000
    )


def on_a_bad_node(count: int = 200) -> list[FleetRun]:
    """Return runs on 20 nodes, of which those on gpu-3 are mostly ill, and one in 20 elsewhere."""
    runs = []
    for number in range(count):
        node = number % 20
        is_ill = number % 40 in {3, 23} and number % 7 if node == 3 else number % 29 == 0
        runs.append(run(number, ill(10 + number) if is_ill else (), node=f"gpu-{node}", config__lr=10.0 ** -(number % 3)))
    return runs


def test_bad_node_is_told_with_its_numbers() -> None:
    runs = on_a_bad_node()
    (cause,) = common_causes(runs)
    here = [one for one in runs if one.facts["node"] == "gpu-3"]
    assert (cause.field, cause.name, cause.value, cause.code) == ("node", "node", "gpu-3", "NUM001")
    assert cause.all_with == len(here) == 10
    assert cause.ill_with == sum(bool(one.findings) for one in here) == len(cause.runs)
    assert cause.ill_without == sum(bool(one.findings) for one in runs) - cause.ill_with
    assert cause.all_with + cause.all_without == len(runs)
    assert cause.p_value < cause.adjusted_p < 0.001
    assert cause.tested > 20
    assert "10 runs on node gpu-3" in cause.sentence


def test_the_order_of_the_runs_is_all_the_same() -> None:
    runs = on_a_bad_node()
    other = list(runs)
    random.Random(1).shuffle(other)
    assert common_causes(runs) == common_causes(other)


def test_same_runs_share_a_setting_too_which_is_named_beside() -> None:
    runs = [replace(one, facts=one.facts | {"config.image": "v" + one.facts["node"][4:]}) for one in on_a_bad_node()]
    (cause,) = common_causes(runs)
    assert cause.field == "node"
    assert "config.image v3" in cause.sentence


def test_what_only_goes_along_with_it_is_not_told() -> None:
    """Half of a rack is ill for its one bad node: neither rack nor partition is the cause."""
    runs = []
    for one in on_a_bad_node(400):
        number = int(one.facts["node"][4:])
        runs.append(replace(one, facts=one.facts | {"config.rack": f"rack{number // 4}", "config.bios": str(number < 8)}))
    assert [(cause.name, cause.value) for cause in common_causes(runs)] == [("node", "gpu-3")]


def test_codes_of_the_same_runs_are_one_cause() -> None:
    runs = [
        replace(one, findings=[*one.findings, *ill(3, "LOSS001")]) if one.facts["node"] == "gpu-3" and one.findings else one
        for one in on_a_bad_node()
    ]
    (cause,) = common_causes(runs)
    assert {"NUM001", "LOSS001"} == {cause.code} | {code for code in ("NUM001", "LOSS001") if code in cause.sentence}


def test_two_bad_nodes_are_two_causes() -> None:
    runs = [run(n, ill() if n % 20 in {3, 8} or n % 57 == 0 else (), node=f"gpu-{n % 20}") for n in range(400)]
    assert {cause.value for cause in common_causes(runs)} == {"gpu-3", "gpu-8"}


def test_a_run_on_several_nodes_counts_for_each() -> None:
    runs = []
    for number in range(200):
        nodes = (number % 20, (number * 7 + 1) % 20)
        runs.append(run(number, ill() if 3 in nodes or number % 57 == 0 else (), node=f"gpu-{nodes[0]}, gpu-{nodes[1]}"))
    assert common_causes(runs)[0].value == "gpu-3"


def test_copies_of_one_run_are_one_witness() -> None:
    """One ill run copied into ten folders is still one run."""
    curve = Curve(steps=[0, 1, 2], values=[3.0, 2.5, "NaN"])
    runs = [run(n, node=f"gpu-{n % 20}") for n in range(200)]
    one = replace(run(500, ill(), node="gpu-77"), loss=curve)
    assert not common_causes([*runs, *(replace(one, run=f"copies/{n}") for n in range(10))])
    separate = [replace(run(500 + n, ill(), node="gpu-77"), loss=curve) for n in range(10)]
    assert common_causes([*runs, *separate])


def test_a_value_of_all_runs_is_never_told() -> None:
    assert not common_causes(
        [run(n, ill(17) if n % 3 else (), node="gpu-1", config__lr="0.1", git__commit="a") for n in range(90)]
    )


def test_one_fleet_in_which_all_are_ill_has_nothing_to_compare() -> None:
    assert not common_causes([run(n, ill(17), node=f"gpu-{n % 4}") for n in range(90)])


def test_threshold_of_a_number_is_one_cause() -> None:
    rates = 10.0 ** np.random.default_rng(0).uniform(-5, -1, 300)
    runs = [
        run(n, ill() if (rate > 0.01 and n % 5) or n % 61 == 0 else (), config__lr=f"{rate:.5g}") for n, rate in enumerate(rates)
    ]
    (cause,) = common_causes(runs)
    assert (cause.field, cause.name) == ("config", "config.lr")
    assert 0.005 < float(cause.value.removeprefix(">= ")) < 0.02


def test_numbers_that_only_name_something_have_no_threshold() -> None:
    runs = [run(n, ill() if n > 260 else (), config__master_port=20_000 + n) for n in range(300)]
    assert {cause.name for cause in common_causes(runs)} <= {"start"}


def test_window_of_starts_names_the_first_commit() -> None:
    runs = [
        run(n, ill() if n >= 250 and n % 6 else (), git__commit="old" if n < 250 else f"new{n // 10}", node=f"gpu-{n % 9}")
        for n in range(300)
    ]
    (cause,) = common_causes(runs)
    assert (cause.field, cause.all_with) == ("start", 50)
    assert cause.value.endswith(" UTC")
    assert "commit new25" in cause.sentence


def test_same_step_in_one_order_of_the_data() -> None:
    runs = [run(n, ill(37 * n + 5) if n % 11 == 0 else (), data_order=f"order{n % 12}") for n in range(240)]
    runs = [
        replace(one, findings=ill(4217)) if one.facts["data_order"] == "order5" and n % 3 else one for n, one in enumerate(runs)
    ]
    (cause,) = common_causes(runs)
    assert (cause.field, cause.value) == ("step", "4217")
    assert (cause.ill_with, cause.all_with, cause.ill_without) == (len(cause.runs), 20, 0)
    assert "order5" in cause.sentence


def test_seed_and_data_stand_for_the_order() -> None:
    runs = [run(n, ill(37 * n + 5) if n % 11 == 0 else (), seed=n % 12, config__dataset="c4") for n in range(240)]
    runs = [replace(one, findings=ill(4217)) if one.facts["seed"] == "5" and n % 3 else one for n, one in enumerate(runs)]
    (cause,) = common_causes(runs)
    assert (cause.field, cause.value) == ("step", "4217")
    assert "seed 5, dataset c4" in cause.sentence


def test_step_at_which_a_rule_begins_anyway_is_no_cause() -> None:
    runs = [run(n, ill(201) if n % 4 == 0 else (), data_order=f"order{n % 9}") for n in range(240)]
    assert not common_causes(runs)


def test_step_in_the_only_order_there_is() -> None:
    def fleet(step: int, **facts: object) -> list[FleetRun]:
        hit = [ill(step) if n % 3 == 0 else ill(23 * n + 40) if n % 10 == 1 else [] for n in range(240)]
        return [run(n, found, data_order="same", **facts) for n, found in enumerate(hit)]

    (cause,) = common_causes(fleet(4217))
    assert (cause.field, cause.value, cause.ill_with) == ("step", "4217", 80)
    assert not common_causes(fleet(4000))
    assert not common_causes(fleet(41))
    assert not common_causes([replace(one, findings=[replace(f, code="LOSS003") for f in one.findings]) for one in fleet(4217)])
    assert not common_causes(fleet(4217, config__warmup_steps=4217))


def test_runs_in_which_less_could_be_judged_are_no_yardstick() -> None:
    """Logs have no gradients: that none of them has a finding on gradients says nothing about who wrote them."""
    open_checks, judged = {"loss": "well", "gradients": "not_judged"}, {"loss": "well", "gradients": "sev1"}
    logs = [replace(run(n, source="log"), vital=open_checks, judged="limited") for n in range(200)]
    ours = [replace(run(n, ill(code="GRD001") if n % 2 else (), source="ours"), vital=judged) for n in range(200, 260)]
    assert not common_causes([*logs, *ours])


def test_facts_of_single_runs_and_odd_ones_invent_nothing_and_break_nothing() -> None:
    odd = ["", "nan", "inf", "-1e999", "\x1b[31mred", "<script>", "a, b,, c", "x" * 200, "1e5", "0x10", "٣"]
    runs = []
    for number in range(220):
        text = odd[number % len(odd)]
        runs.append(run(number, ill() if number % 9 == 0 else (), start=text, node=text, config__x=text, config__y=number))
    assert not common_causes(runs)
    assert not common_causes([])
    assert not common_causes([replace(one, facts={}) for one in runs])
    assert not common_causes([replace(one, status="unreadable", findings=[]) for one in runs])


def test_nothing_is_invented_in_fleets_without_a_cause() -> None:
    assert not [cause for runs, _ in fleets(11, 25, None) if len(runs) < 300 for cause in common_causes(runs)]
