import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.audit import triage
from ckaudit.contract.schema.report import Check, Finding
from ckaudit.diff.siblings.bands import SiblingRun, all_bands, band_departures
from ckaudit.diff.siblings.comparable import unlike_settings
from ckaudit.diff.siblings.quantities import QUANTITIES
from ckaudit.diff.siblings.shared_findings import SiblingFindings, why_normal
from ckaudit.diff.siblings.yardstick import rate_departures
from ckaudit.errors import UsageError
from ckaudit.fleet.like import MAX_SIBLINGS, criteria_like
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.policy.policy_schema import Ignore, Policy, PolicyClauses
from tests.diff.made import losses, run
from tests.diff.pairs import PAIRS, copied, manifest

RUNS = PAIRS.parent / "runs"
REPLICAS = [str(PAIRS / "replica*")]


def judged(subject, like, **asked):
    criteria = criteria_like(asked.pop("criteria", OPEN), like, runs=[subject])
    return triage(subject, criteria=criteria, **asked)


def told(report):
    return {finding.code: finding for finding in report.findings if finding.code.startswith("SIB")}


# What leaves the band.
def test_a_replica_stays_in_the_band_of_the_others_and_is_told_what_it_was_held_against():
    report = judged(PAIRS / "base", REPLICAS)
    assert not told(report)
    assert [(Path(sibling.run).name, sibling.counts) for sibling in report.siblings] == [("replica", True), ("replica_2", True)]
    assert any(note.startswith("held against 2 healthy siblings: ") for note in report.notes)
    outcomes = {check.code: check.outcome for check in report.checks if check.code.startswith("SIB")}
    assert {code for code, outcome in outcomes.items() if outcome == "passed"} >= {
        "SIB001",
        "SIB002",
        "SIB003",
        "SIB004",
        "SIB005",
    }


def test_a_doubled_rate_is_found_at_its_step_with_the_number_of_siblings_that_say_so():
    found = told(judged(PAIRS / "lr_doubled", [*REPLICAS, str(PAIRS / "base")]))
    assert found["SIB007"].first_step == found["SIB004"].first_step == 500
    assert "all 3 siblings" in found["SIB007"].message
    assert "above all 3 siblings" in found["SIB004"].message
    assert found["SIB004"].severity == "sev2"
    assert found["SIB004"].value > found["SIB004"].limit


def test_what_had_not_begun_at_a_step_is_not_told_there():
    assert not told(judged(PAIRS / "lr_doubled", REPLICAS, step=450))


def test_a_run_with_another_tokenizer_is_held_against_nobody():
    alone, beside = triage(PAIRS / "tokenizer"), judged(PAIRS / "tokenizer", REPLICAS)
    assert beside.findings == alone.findings
    assert beside.checks == alone.checks
    assert all("tokenizer_hash is" in sibling.why_not for sibling in beside.siblings)


def test_without_siblings_the_report_has_no_word_of_them():
    report = triage(PAIRS / "base", criteria=criteria_like(OPEN, [], runs=[PAIRS / "base"]))
    assert report.siblings is UNSET
    assert report == triage(PAIRS / "base")


PYTHIA = PAIRS.parent / "real" / "pythia"


@pytest.mark.parametrize(("seed", "other"), [(6, 8), (8, 6)])
def test_two_public_seeds_of_one_model_stay_in_the_band_of_each_other(seed, other):
    report = judged(PYTHIA / f"160m-{seed}.first5000.csv", [str(PYTHIA / f"160m-{other}.first5000.csv")])
    assert not told(report)
    assert next(check for check in report.checks if check.code == "SIB001").outcome == "passed"


def test_a_public_loss_that_is_a_tenth_higher_from_some_step_on_is_found_there(tmp_path):
    head, *rows = (PYTHIA / "160m-6.first5000.csv").read_text().splitlines()
    place = head.split(",").index("train/lm_loss")
    cells = [row.split(",") for row in rows]
    for row in cells[3000:]:
        row[place] = str(1.1 * float(row[place]))
    (tmp_path / "raised.csv").write_text("\n".join([head, *map(",".join, cells)]) + "\n")
    found_there = told(judged(tmp_path / "raised.csv", [str(PYTHIA / "160m-8.first5000.csv")]))["SIB001"]
    assert found_there.severity == "sev2"
    assert 2900 <= found_there.first_step <= 3100
    assert "above its sibling" in found_there.message


def _curves(seeds, **made):
    return [run(f"sibling {seed}", train_loss_raw=losses(seed, **made)) for seed in seeds]


def _departures(subject, siblings):
    bands = all_bands(subject, [SiblingRun(sibling) for sibling in siblings])
    return list(band_departures(bands, tests=sum(len(band.stretches.first) for band in bands)))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_noise_alone_stays_in_the_band(count):
    runs = _curves(range(120))
    left = [place for place in range(120 - count) if _departures(runs[place], runs[place + 1 : place + 1 + count])]
    assert len(left) <= 1  # less than 1 %


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_level_that_rises_is_found_where_it_rises(count):
    raised = losses(100, scale=0.02)
    raised[250:] += 1.0
    [departure] = _departures(run("raised", train_loss_raw=raised), _curves(range(count), scale=0.02))
    parts = departure.band.stretches
    assert 240 <= parts.first[departure.first] <= 260
    assert departure.votes == count
    last = slice(int(parts.first[-1]) - 1, int(parts.last[-1]))
    assert parts.right[-1] == pytest.approx(float(np.median(raised[last])))


def test_one_sibling_that_lies_apart_does_not_accuse_the_run():
    siblings = [*_curves([1, 2], scale=0.02), *_curves([3, 4], scale=0.02, level=1.5)]
    assert not _departures(run("run", train_loss_raw=losses(9, scale=0.02)), siblings)


def test_a_single_point_is_no_departure():
    spiked = losses(1)
    spiked[200] = 50.0
    assert not _departures(run("spiked", train_loss_raw=spiked), _curves([2, 3, 4]))


def test_a_loss_below_the_band_is_a_note():
    low = run("low", train_loss_raw=losses(9, scale=0.02, end=0.5))
    report_of = judged_in_memory(low, _curves([1, 2, 3], scale=0.02))
    assert told(report_of)["SIB001"].severity == "note"
    assert "below all 3 siblings" in told(report_of)["SIB001"].message


def judged_in_memory(subject, siblings, criteria=OPEN):
    from ckaudit.audit import triage_run

    return triage_run(subject, criteria=criteria_like(criteria, siblings, runs=[subject]))


def test_a_run_beyond_the_end_of_its_siblings_is_judged_where_they_have_steps():
    long = losses(9, scale=0.02, count=600)
    long[100:] += 1.0
    short = [run(f"short {seed}", train_loss_raw=losses(seed, scale=0.02, count=400)) for seed in (1, 2)]
    assert told(judged_in_memory(run("long", train_loss_raw=long), short))["SIB001"].last_step <= 400


def _by_tokens(name, tokens, *, counted=True):
    noise = np.random.default_rng(len(name)).normal(0, 0.02, len(tokens))
    seen = {"tokens_seen": tokens} if counted else {}
    return run(name, train_loss_raw=2 + 2 * np.exp(-tokens / 250_000) + noise, **seen)


@pytest.mark.parametrize("counted", [True, False])
def test_what_has_seen_fewer_tokens_is_held_against_siblings_that_had_seen_as_few(counted):
    plain = 1000.0 * np.arange(1, 401)
    siblings = [_by_tokens("one", plain, counted=counted), _by_tokens("other", plain, counted=counted)]
    behind = np.cumsum(np.where(np.arange(400) < 250, 1000.0, 200.0))
    report = judged_in_memory(_by_tokens("behind", behind, counted=counted), siblings)
    assert all(sibling.counts for sibling in report.siblings)
    assert ("SIB001" in told(report)) is not counted


# Learning rates.
def _rates(values, seed=1):
    return run(f"rates {seed}", learning_rate=values, train_loss_raw=losses(seed, count=len(values)))


def test_a_rate_that_siblings_share_and_the_run_leaves_is_found_by_itself():
    planned = np.linspace(1.0, 0.1, 100)
    own = planned.copy()
    own[60:80] *= 2
    [left] = rate_departures(_rates(own), [SiblingRun(_rates(planned, 2)), SiblingRun(_rates(planned, 3))])
    assert (left.first, left.last, left.siblings, left.may_follow_loss) == (61, 80, 2, False)
    assert left.own == pytest.approx(2 * left.theirs)


def test_rates_that_wait_for_the_loss_differ_from_sibling_to_sibling_and_accuse_nobody():
    first, second, own = (np.where(np.arange(100) < turn, 1.0, 0.1) for turn in (40, 55, 60))
    assert not list(rate_departures(_rates(own), [SiblingRun(_rates(first, 2)), SiblingRun(_rates(second, 3))]))


def test_one_that_is_lowered_in_one_piece_is_a_note():
    held, lowered = np.ones(100), np.where(np.arange(100) < 50, 1.0, 0.1)
    report = judged_in_memory(_rates(lowered), [_rates(held, 2), _rates(held, 3)])
    assert told(report)["SIB007"].severity == "note"


# Which siblings count.
def test_another_configuration_is_told_and_left_out(tmp_path):
    other = manifest(copied("replica", tmp_path), lambda whole: whole["config"].update(lr=0.5))
    report = judged(PAIRS / "base", [str(other), str(PAIRS / "replica_2")])
    assert [sibling.counts for sibling in report.siblings] == [False, True]
    assert "lr is 0.5 there" in report.siblings[0].why_not
    assert any("left out of the siblings" in note and "lr is 0.5 there" in note for note in report.notes)


def test_what_only_one_side_says_is_no_other_configuration(tmp_path):
    silent = manifest(copied("replica", tmp_path), lambda whole: whole.pop("config"))
    assert judged(PAIRS / "base", [str(silent)]).siblings[0].counts


def test_a_first_learning_rate_that_differs_is_another_configuration_though_nobody_says_so():
    one, other = (run("one", learning_rate=np.full(50, rate), train_loss_raw=losses(1, count=50)) for rate in (0.1, 0.2))
    assert unlike_settings(one, other) == ["the learning rate at step 1 is 0.1 there and 0.2 here"]
    assert unlike_settings(one, one) == []


def test_an_ill_sibling_is_told_and_quiets_nothing(tmp_path):
    shutil.copytree(RUNS / "nan_batch", tmp_path / "twin")
    alone, beside = triage(RUNS / "nan_batch"), judged(RUNS / "nan_batch", [str(tmp_path / "twin")])
    assert beside.findings == alone.findings
    assert beside.severity == "sev0"
    assert beside.siblings[0].why_not.startswith("ill itself: sev0 ")
    assert not beside.suppressed


def test_what_cannot_be_read_is_told_and_stops_no_other(tmp_path):
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "run.json").write_text("{")
    report = judged(PAIRS / "base", [str(tmp_path / "torn"), *REPLICAS])
    assert [sibling.counts for sibling in report.siblings] == [False, True, True]


def test_the_run_is_no_sibling_of_its_own():
    report = judged(PAIRS / "base", [str(PAIRS / "base"), *REPLICAS])
    assert len(report.siblings) == 2
    with pytest.raises(UsageError, match="no run but the one"):
        judged(PAIRS / "base", [str(PAIRS / "bas?")])


def test_no_more_than_twenty_are_looked_at():
    siblings = _curves(range(MAX_SIBLINGS + 5), count=40)
    report = judged_in_memory(run("run", train_loss_raw=losses(99, count=40)), siblings)
    assert len(report.siblings) == MAX_SIBLINGS
    assert any(f"{MAX_SIBLINGS} are looked at" in note for note in report.notes)


# What is normal.
RISES = Finding(
    code="LOSS004",
    name="loss_rises",
    severity="sev2",
    message="",
    where="loss",
    first_step=100,
    last_step=200,
    value=2.0,
    limit=1.0,
)
ABLE = Check(code="LOSS004", name="loss_rises", title="", severity="sev1", outcome="passed")


def found(*findings, check=ABLE):
    return SiblingFindings(findings, [check])


def test_a_finding_that_half_of_the_siblings_have_is_normal():
    assert why_normal(RISES, [found(RISES), found()], []) == ("1 of 2 healthy siblings have it too, of comparable size (2 there)")
    assert why_normal(RISES, [found(RISES), found(), found()], []) is None


def test_a_sibling_that_could_not_judge_has_no_say():
    blind = found(check=replace(ABLE, outcome="skipped", reason="not_recorded"))
    assert why_normal(RISES, [found(RISES), blind, blind], []) is not None


@pytest.mark.parametrize(
    "theirs",
    [
        replace(RISES, value=1.05),
        replace(RISES, where="val_loss"),
        replace(RISES, severity="note"),
        replace(RISES, code="LOSS002"),
        replace(RISES, value=None),
    ],
)
def test_what_is_smaller_elsewhere_milder_or_something_else_is_not_the_same(theirs):
    assert why_normal(RISES, [found(theirs)], []) is None


def test_what_comes_later_and_lasts_is_not_what_siblings_had_early():
    early = replace(RISES, first_step=10, last_step=60)
    assert why_normal(RISES, [found(early)], [], last_step=300) is None
    assert why_normal(replace(RISES, first_step=30, last_step=80), [found(early)], [], last_step=300) is not None
    spike = replace(RISES, first_step=200, last_step=205)
    assert why_normal(spike, [found(early)], [], last_step=300) is not None


@pytest.mark.parametrize("severity", ["sev0", "sev1", "note"])
def test_nothing_grave_is_ever_normal(severity):
    finding = replace(RISES, severity=severity)
    assert why_normal(finding, [found(finding)], []) is None


def test_blocks_of_another_number_are_the_same_place():
    ours, theirs = replace(RISES, where="layers.3.mlp", also=["layers.0.mlp"]), replace(RISES, where="layers.1.mlp")
    assert why_normal(ours, [found(theirs)], []) is not None


def _loss_bands(subject, siblings):
    return all_bands(subject, [SiblingRun(sibling) for sibling in siblings], QUANTITIES[:2])


def test_the_course_of_a_loss_that_lies_no_higher_than_the_siblings_is_normal_among_two():
    siblings = _curves([1, 2], scale=0.02)
    well = _loss_bands(run("well", train_loss_raw=losses(3, scale=0.02)), siblings)
    high = _loss_bands(run("high", train_loss_raw=losses(3, scale=0.02, level=0.3)), siblings)
    assert "no higher than in 2 healthy siblings" in why_normal(RISES, [found(), found()], well)
    assert why_normal(RISES, [found(), found()], high) is None
    jumped = losses(3, scale=0.02)
    jumped[120:124] += 3.0
    assert why_normal(RISES, [found(), found()], _loss_bands(run("jumped", train_loss_raw=jumped), siblings)) is None
    assert why_normal(replace(RISES, code="GRAD001"), [found(), found()], well) is None
    assert why_normal(RISES, [found()], _loss_bands(run("well", train_loss_raw=losses(3)), siblings[:1])) is None


def test_an_illness_that_siblings_share_does_not_count_and_is_told_with_its_reason(tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(RUNS / "overfit_tiny", twin)
    alone, beside = triage(RUNS / "overfit_tiny"), judged(RUNS / "overfit_tiny", [str(twin)])
    grave = {finding.code for finding in alone.findings if finding.severity == "sev2"}
    assert grave
    assert {suppressed.finding.code for suppressed in beside.suppressed} == grave
    assert {suppressed.by for suppressed in beside.suppressed} == {"siblings"}
    assert "normal among its siblings" in beside.verdict
    assert not beside.diagnoses


def test_a_policy_grades_and_ignores_what_siblings_say():
    clauses = PolicyClauses(severities={"SIB004": "note"}, ignore=(Ignore(code="SIB007", reason="meant"),))
    siblings = [*REPLICAS, str(PAIRS / "base")]
    report = judged(
        PAIRS / "lr_doubled", siblings, criteria=AcceptanceCriteria(policy=Policy(file="ckaudit.toml", base=clauses, profiles={}))
    )
    assert told(report)["SIB004"].severity == "note"
    assert "SIB007" not in told(report)
    assert [(suppressed.finding.code, suppressed.by) for suppressed in report.suppressed] == [("SIB007", "policy")]


# Speed.
def _timed(name, seconds, **facts):
    steps = np.arange(1, 121)
    made = run(name, time=1.7e9 + seconds * steps, train_loss_raw=losses(len(name), count=120))
    return replace(made, manifest=replace(made.manifest, **facts)) if facts else made


def test_a_run_that_was_slow_from_its_first_step_is_found():
    fast = [_timed("fast", 1.0), _timed("faster", 0.95)]
    assert told(judged_in_memory(_timed("slow", 2.0), fast))["SIB006"].first_step < 20
    assert "SIB006" not in told(judged_in_memory(_timed("slow", 1.2), fast))


def test_the_speed_of_another_machine_is_no_yardstick():
    other = [_timed("other", 1.0, environment={"gpu": "H100"})]
    assert "SIB006" not in told(judged_in_memory(_timed("slow", 2.0, environment={"gpu": "T4"}), other))
