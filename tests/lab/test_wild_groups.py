"""Groups of good and changed runs: how they are drawn, recorded and scored."""

from math import inf
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from ckaudit.cli.run import run
from ckaudit.lab.wild.groups import GroupMember, GroupNote
from ckaudit.lab.wild.pair_score import PairOutcome, judge_group, summarized
from ckaudit.lab.wild.publish import add_to_ledger
from ckaudit.lab.wild.record import MemberPlan, _record_member, draw_group, round_otherwise
from ckaudit.lab.zoo import FAMILIES

SMALL = replace(FAMILIES["tabular"], through="loop", steps=40, train=512, held_out=64, every=10, lr=3e-3, facts={})


def test_a_group_depends_on_its_number_alone_and_its_runs_differ_as_they_say() -> None:
    one, plans = draw_group("wild-dev", 3, 5)
    again, others = draw_group("wild-dev", 3, 5)
    assert (one, [plan.seed for plan in plans]) == (again, [plan.seed for plan in others])
    by_name = {plan.member.name: plan for plan in plans}
    first = by_name["good_0"]
    assert len({plan.seed for plan in plans if plan.member.kind == "good"}) == 6
    assert (by_name["order"].seed, by_name["order"].order != first.order) == (first.seed, True)
    assert by_name["rate_x3"].recipe.lr == pytest.approx(3 * first.recipe.lr)
    assert all((plan.seed, plan.order) == (first.seed, first.order) for plan in plans if plan.member.kind == "change")
    assert [member.onset > 1 for member in one.of("change")] == [False, False, False, True]


def test_other_rounding_moves_half_of_the_weights_by_one_bit() -> None:
    torch.manual_seed(0)
    model = SMALL.model()
    before = [weight.detach().clone() for weight in model.parameters()]
    round_otherwise(model)
    moved = torch.cat([(weight.detach() != old).flatten() for weight, old in zip(model.parameters(), before, strict=True)])
    assert 0.4 < moved.float().mean() < 0.6
    for weight, old in zip(model.parameters(), before, strict=True):
        up = torch.nextafter(old, torch.full_like(old, torch.inf))
        assert ((weight == old) | (weight == up)).all()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, GroupNote]:
    folder = tmp_path_factory.mktemp("group")
    halted = replace(SMALL, lr=SMALL.lr / 1000)
    members = [GroupMember(name=f"good_{place}", kind="good") for place in range(3)]
    members += [GroupMember(name="order", kind="order"), GroupMember(name="slow", kind="change", change="slow", onset=1)]
    for place, member in enumerate(members):
        seed, order = (place, place) if member.kind == "good" else (0, 9 if member.kind == "order" else 0)
        plan = MemberPlan(member=member, recipe=halted if member.kind == "change" else SMALL, seed=seed, order=order)
        _record_member(plan, folder, data_seed=0)
    group = GroupNote(family="tabular", through="loop", optimizer="adam", schedule="constant", steps=40, members=tuple(members))
    return folder, group


def test_a_member_that_is_there_is_left_alone(recorded: tuple[Path, GroupNote]) -> None:
    folder, group = recorded
    before = (folder / "good_0" / "scalars.jsonl").stat().st_mtime_ns
    _record_member(MemberPlan(member=group.members[0], recipe=SMALL, seed=0, order=0), folder, data_seed=0)
    assert (folder / "good_0" / "scalars.jsonl").stat().st_mtime_ns == before


def test_good_runs_pass_and_one_that_learns_nothing_is_found(recorded: tuple[Path, GroupNote]) -> None:
    outcomes = list(judge_group(recorded[0], 0, recorded[1]))
    alike = [outcome for outcome in outcomes if outcome.is_alike]
    assert {outcome.gate for outcome in alike} == {"passed"}
    assert "worse" not in {outcome.word for outcome in alike}
    slow = [outcome for outcome in outcomes if outcome.change == "slow"]
    assert min(outcome.effect for outcome in slow) > 3
    assert {(outcome.gate, outcome.parting) for outcome in slow if outcome.is_paired and outcome.good > 1} == {("failed", 1)}


def outcome(**told: object) -> PairOutcome:
    plain = {"index": 0, "family": "f", "kind": "good", "change": "", "onset": 0, "effect": 0.0, "good": 1, "is_paired": False}
    judged = {"word": "within_noise", "decided": (), "gate": "passed", "parting": None, "statistic": "", "interval": 10}
    return PairOutcome(**(plain | judged | told))  # type: ignore[arg-type]


def test_outcomes_are_added_up(tmp_path: Path) -> None:
    changed = {"kind": "change", "change": "c", "onset": 1, "parting": 8}
    score = summarized(
        "wild-dev",
        1,
        [
            outcome(),
            outcome(word="worse", gate="failed"),
            outcome(**changed, effect=4.0, word="worse", gate="failed"),
            outcome(**changed, effect=inf),
            outcome(**changed, effect=-5.0, word="better", is_paired=True),
            outcome(**changed, effect=2.0, word="worse"),
        ],
    )
    row = score.rows[0]
    assert [(share.hits, share.of) for share in (row.worse, row.failed, row.found, row.stopped, row.helped)] == [
        (1, 2),
        (1, 2),
        (1, 2),
        (1, 2),
        (1, 1),
    ]
    assert row.by_one_who_knows.hits == 2  # 4 deviations are more than 2.58 of the difference of two runs, which is 3.64
    near = score.partings["another seed, within one interval of checkpoints"], score.partings["another seed, within 2 steps"]
    assert [(share.hits, share.of) for share in near] == [(2, 2), (0, 2)]
    assert len(score.wrong) == 2
    ledger = tmp_path / "ledger.csv"
    assert add_to_ledger(score, ledger) == f"added 4 lines to {ledger}"
    assert ledger.read_text().splitlines()[1].endswith(",wild-dev,1,1,1,1/2,1/2,1/2,1/2,1/2,2/2,1/1,0/1")


def test_pairs_are_of_the_wild_splits_alone(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["lab", "score", "--pairs"]) == 2
    assert "--split wild-dev" in capfd.readouterr().err
    assert run(["lab", "score", "--pairs", "--split", "wild-dev", "--cache", str(tmp_path)]) == 2
    assert "ckaudit lab wild --pairs" in capfd.readouterr().err
