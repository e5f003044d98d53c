"""A baseline on recorded runs: what is accepted, what is new all the same, what is stale."""

import json
import shutil

import msgspec
import pytest

from ckaudit.cli.run import run
from ckaudit.contract.schema.report import Accepted, Finding
from ckaudit.policy.baseline import Baseline, accepted, is_same
from tests.policy.conftest import RUNS

FINDING = Finding(
    code="GRAD003",
    name="dead_parameter",
    severity="sev2",
    message="8 tensors get no gradient",
    where="a",
    also=["b", "c", "d"],
    first_step=200,
    last_step=300,
    worst_step=250,
    value=1e-12,
)


def changed(**what):
    return msgspec.structs.replace(FINDING, **what)


def entries(path):
    return json.loads(path.read_text())["accepted"]


def test_what_was_accepted_fails_nothing_any_more_and_is_counted(told, tmp_path):
    code, before, _ = told("lr_too_high")
    assert code == 1
    code, report, err = told("lr_too_high", "--baseline", "known.json", "--update-baseline")
    assert (code, err) == (0, f"wrote known.json: {len(before['findings'])} accepted\n")
    code, report, _ = told("lr_too_high", "--baseline", "known.json", "--fail-on", "note")
    assert code == 0
    assert (report["findings"], report["diagnoses"], report["stale"], report["severity"]) == ([], [], [], None)
    without_help = [{key: value for key, value in each.items() if key != "help"} for each in before["findings"]]
    assert [each["finding"] for each in report["suppressed"]] == without_help
    assert {each["by"] for each in report["suppressed"]} == {"baseline"}
    assert f"{len(before['findings'])} findings are accepted" in report["verdict"]


def test_a_file_written_twice_is_the_same(told, tmp_path):
    told("lr_too_high", "--baseline", "known.json", "--update-baseline")
    first = (tmp_path / "known.json").read_bytes()
    told("lr_too_high", "--baseline", "known.json", "--update-baseline")
    assert (tmp_path / "known.json").read_bytes() == first


def test_the_same_run_twenty_steps_later_is_accepted_but_for_what_has_spread_or_begun(told, tmp_path):
    _, plain, _ = told("lr_too_high")
    told("lr_too_high", "--step", "280", "--baseline", "known.json", "--update-baseline")
    code, report, _ = told("lr_too_high", "--baseline", "known.json")
    (spread,) = [each for each in report["findings"] if each["code"] == "GRAD003"]
    assert [each["where"] for each in report["findings"] if each != spread] == ["blocks.1.mlp.down"]  # runs away since
    (before,) = [
        each for each in entries(tmp_path / "known.json") if each.get("where") == spread["where"] == "blocks.1.attn.out.weight"
    ]
    assert (code, before.get("also", []), len(spread["also"])) == (0, [], 3)
    assert len(report["suppressed"]) == len(plain["findings"]) - 2
    assert report["stale"] == []


def test_another_illness_is_new(told):
    told("zeroed_projection", "--baseline", "known.json", "--update-baseline")
    code, report, _ = told("lr_too_high", "--baseline", "known.json")
    assert code == 1
    assert "LOSS001" in {each["code"] for each in report["findings"]}


def test_entries_that_nothing_matches_are_stale_until_an_update_drops_them(told, tmp_path):
    told("zeroed_projection", "--baseline", "known.json", "--update-baseline")
    kept = entries(tmp_path / "known.json")
    code, report, _ = told("healthy", "--baseline", "known.json")
    assert (code, report["stale"], report["suppressed"]) == (0, kept, [])
    _, _, err = told("healthy", "--baseline", "known.json", "--update-baseline")
    assert err == f"wrote known.json: 0 accepted, {len(kept)} dropped or renewed\n"
    assert entries(tmp_path / "known.json") == []


def test_what_could_not_be_judged_is_not_stale(told, tmp_path):
    told("zeroed_projection", "--baseline", "known.json", "--update-baseline")
    (tmp_path / "log.csv").write_text("step,train_loss_raw\n" + "".join(f"{step},{3 - step / 100}\n" for step in range(1, 101)))
    _, report, _ = told(tmp_path / "log.csv", "--baseline", "known.json")
    assert "GRAD003" not in {each["code"] for each in report["stale"]}
    told(tmp_path / "log.csv", "--baseline", "known.json", "--update-baseline")
    assert "GRAD003" in {each["code"] for each in entries(tmp_path / "known.json")}


def test_reasons_written_by_hand_are_shown_and_kept(told, tmp_path):
    told("zeroed_projection", "--baseline", "known.json", "--update-baseline")
    file = tmp_path / "known.json"
    document = json.loads(file.read_text())
    for each in document["accepted"]:
        each["reason"] = "the ablation of March"
    file.write_text(json.dumps(document))
    _, report, _ = told("zeroed_projection", "--baseline", "known.json", "--update-baseline")
    assert {each["reason"] for each in report["suppressed"]} == {"the ablation of March"}
    assert {each["reason"] for each in entries(file)} == {"the ablation of March"}


def test_what_the_policy_ignores_is_not_written_into_the_baseline(told, tmp_path):
    policy = '[[ignore]]\ncode = "GRAD003"\nreason = "frozen"\n'
    _, report, _ = told("zeroed_projection", "--baseline", "known.json", "--update-baseline", policy=policy)
    assert "policy" in {each["by"] for each in report["suppressed"]}
    assert "GRAD003" not in {each["code"] for each in entries(tmp_path / "known.json")}


def test_one_file_serves_both_commands(told, tmp_path):
    (tmp_path / "bad").mkdir()
    shutil.copy(RUNS.parent / "checkpoints" / "invalid" / "SCH008_unknown_field.json", tmp_path / "bad")
    told("zeroed_projection", "--baseline", "known.json", "--update-baseline")
    code, report, _ = told(tmp_path / "bad", "--strict", "--baseline", "known.json", command="validate")
    assert (code, report["stale"]) == (1, [])
    told(tmp_path / "bad", "--baseline", "known.json", "--update-baseline", command="validate")
    code, report, _ = told(tmp_path / "bad", "--strict", "--baseline", "known.json", command="validate")
    assert code == 0
    assert report["verdict"] == "nothing new in 1 file; 1 finding is accepted"
    assert {each["command"] for each in entries(tmp_path / "known.json")} == {"triage", "validate"}
    assert told("zeroed_projection", "--baseline", "known.json", "--fail-on", "note")[0] == 0


def test_a_new_file_with_an_old_violation_is_new(told, tmp_path):
    (tmp_path / "bad").mkdir()
    source = RUNS.parent / "checkpoints" / "invalid" / "SCH008_unknown_field.json"
    shutil.copy(source, tmp_path / "bad" / "a.json")
    told(tmp_path / "bad", "--baseline", "known.json", "--update-baseline", command="validate")
    shutil.copy(source, tmp_path / "bad" / "b.json")
    _, report, _ = told(tmp_path / "bad", "--baseline", "known.json", command="validate")
    assert {each["file"] for each in report["findings"] if each["code"] == "SCH008"} == {"b.json"}


def test_a_baseline_that_cannot_be_written_is_told(told, tmp_path):
    code, _, err = told("healthy", "--baseline", "no/such/folder/known.json", "--update-baseline")
    assert code == 2
    assert "cannot write no/such/folder/known.json" in err


@pytest.mark.parametrize(
    ("finding", "same"),
    [
        (changed(value=3e-11, last_step=5000, worst_step=4000, message="otherwise", points=99), True),
        (changed(first_step=250), True),
        (changed(first_step=251), False),
        (changed(where="b", also=["a", "c", "d"]), True),
        (changed(also=["b", "c", "d", "e", "f", "g", "h"]), True),
        (changed(also=["b", "c", "d", "e", "f", "g", "h", "i"]), False),
        (changed(where="b", also=[]), True),
        (changed(where="z", also=[]), False),
        (changed(code="GRAD001"), False),
        (changed(file="x.json"), False),
        (changed(first_step=None), False),
    ],
)
def test_what_is_the_same_finding(finding, same):
    assert is_same(accepted(FINDING, "triage", None), finding) is same


@pytest.mark.parametrize(("start", "drift", "same"), [(8000, 2000, True), (8000, 2001, False), (10, 50, True), (10, 51, False)])
def test_a_start_may_drift_by_a_checkpoint_or_a_quarter(start, drift, same):
    entry = accepted(changed(first_step=start), "triage", None)
    assert is_same(entry, changed(first_step=start + drift)) is same


def test_one_entry_accepts_one_finding_the_nearest():
    spikes = [changed(code="LOSS001", where="loss", also=[], first_step=step) for step in (900, 1010, 1150)]
    baseline = Baseline(
        file="x", entries=[accepted(changed(code="LOSS001", where="loss", also=[], first_step=1000), "triage", None)]
    )
    assert list(baseline.matched(spikes)) == [1]


def test_what_has_become_graver_is_new_and_its_entry_not_stale(told, tmp_path):
    told("zeroed_projection", "--baseline", "known.json", "--update-baseline")
    policy = '[severities]\nGRAD003 = "sev1"\n'
    code, report, _ = told("zeroed_projection", "--baseline", "known.json", policy=policy)
    assert (code, report["severity"], report["stale"]) == (1, "sev1", [])


def test_ten_thousand_entries_take_no_time():
    findings = [changed(file=f"{number}.json", pointer="/step") for number in range(10_000)]
    baseline = Baseline(file="x", entries=[accepted(each, "validate", None) for each in findings])
    assert len(baseline.matched(findings)) == 10_000


@pytest.mark.parametrize("kind", ["terminal", "markdown", "github", "junit", "sarif"])
def test_every_format_counts_what_is_accepted(told, tmp_path, capfd, kind):
    told("zeroed_projection", "--baseline", "known.json", "--update-baseline")
    count = len(entries(tmp_path / "known.json"))
    assert run(["triage", str(RUNS / "zeroed_projection"), "-f", kind, "--baseline", "known.json"]) == 0
    plural = "finding does" if count == 1 else "findings do"
    assert f"{count} {plural} not count: {count} accepted in known.json" in capfd.readouterr().out


def test_entries_say_what_a_reader_needs():
    entry = accepted(FINDING, "triage", "why not")
    assert msgspec.json.decode(msgspec.json.encode(entry), type=Accepted) == entry
    assert (entry.message, entry.reason) == ("8 tensors get no gradient", "why not")
