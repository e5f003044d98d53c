"""Why a benchmark fell: each gate fires, passes and stays open on runs written to disk, asked through the program."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from ckaudit.audit.drop import benchmark_drop, benchmark_drop_of, fall_since, largest_score_fall
from ckaudit.audit.drop.guide import GUIDE
from ckaudit.audit.drop.shift import ShiftLimits, shift
from ckaudit.cli.run import run
from ckaudit.errors import UsageError
from ckaudit.reports.schemas import output_schema
from tests.metrics.samples import run_of

ROOT = Path(__file__).parents[2]
EXPERTS = ROOT / "fixtures" / "runs" / "experts_two_ranks"
STEPS = range(1, 401)
SCORES = {50: 0.30, 100: 0.36, 150: 0.41, 200: 0.45, 250: 0.48, 300: 0.50, 350: 0.40, 400: 0.41}  # falls between 300 and 350


def quiet(step):
    """Return what every line says where nothing changes."""
    wave = np.sin(step)
    line = {"step": step, "train_loss_raw": 3 - step / 400 + 0.02 * wave, "grad_global_norm": 1 + 0.1 * wave}
    line |= {
        "max_attn_logit": 12 + 0.5 * wave,
        "source_mix_share/web": 0.6 + 0.01 * wave,
        "source_mix_share/books": 0.4 - 0.01 * wave,
    }
    if step in SCORES:
        line |= {"microbench_score/arc": SCORES[step], "eval_artifact_hash/arc": "sha256:aa", "val_loss": 3 - step / 400}
    return line


def written(folder, change=dict, *, drop=(), manifest=None):
    """Write a log of 400 steps as `change` makes it of the quiet one, without the names that begin with one of `drop`."""
    lines = []
    for step in STEPS:
        line = {**quiet(step), **change(step)} if change is not dict else quiet(step)
        lines.append({name: value for name, value in line.items() if not name.startswith(tuple(drop) or "\0")})
    (folder / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if manifest:
        (folder / "run.json").write_text(json.dumps({"schema_version": "ck.run.v1", **manifest}))
    return folder


def outcomes(found):
    return {gate.row: (gate.outcome, gate.provisional) for gate in found.gates}


def changed(found, row):
    return [each for gate in found.gates if gate.row == row for each in gate.evidence if each.said == "changed"]


def test_where_nothing_changed_the_architecture_is_left(tmp_path):
    found = benchmark_drop(written(tmp_path))
    assert (found.fall.benchmark, found.fall.before, found.fall.after) == ("arc", 300, 350)
    assert (found.fall.high, found.fall.low) == (0.50, 0.40)
    assert outcomes(found) == dict.fromkeys(("SR-1", "SR-2", "SR-3"), ("passed", False)) | {"SR-4": ("advice", False)}
    assert found.answer == "SR-4"
    assert [row.row for row in found.guide] == ["ARC-1", "ARC-2", "ARC-3", "ME-1", "ME-2", "ME-3", "ME-4"]
    assert "nothing says that the model has experts" in {row.row: row.not_applicable for row in found.guide}["ARC-2"]
    assert "max_attn_logit 11.57 logit at step 400" in found.guide[2].here  # 12 + sin(400) / 2


def test_another_artifact_is_the_answer_whatever_else_changed(tmp_path):
    def other(step):
        new = {"eval_artifact_hash/arc": "sha256:bb"} if step >= 350 and step in SCORES else {}
        return new | ({"max_attn_logit": 900.0} if step > 320 else {})

    found = benchmark_drop(written(tmp_path, other))
    assert outcomes(found) == {
        "SR-1": ("failed", False),
        "SR-2": ("passed", False),
        "SR-3": ("failed", False),
        "SR-4": ("not_reached", False),
    }
    assert found.answer == "SR-1"
    (evidence,) = changed(found, "SR-1")
    assert (evidence.step, evidence.sentence) == (350, "arc: sha256:aa at step 300, sha256:bb at step 350")
    assert "new artifacts" in found.gates[0].do[1]


def test_a_hash_is_compared_with_run_json_where_the_good_time_logged_none(tmp_path):
    late = lambda step: {} if step >= 350 else {"eval_artifact_hash/arc": None}  # noqa: E731
    assert outcomes(benchmark_drop(written(tmp_path, late)))["SR-1"] == ("not_judged", False)
    written(tmp_path, late, manifest={"eval_artifact_hashes": {"arc": "sha256:cc"}})
    (evidence,) = changed(benchmark_drop(tmp_path), "SR-1")
    assert evidence.sentence == "arc: sha256:cc in run.json, sha256:aa at step 350"


def test_one_artifact_without_a_pair_keeps_the_gate_open(tmp_path):
    new = lambda step: {"eval_artifact_hash/mmlu": "sha256:dd"} if step >= 350 and step in SCORES else {}  # noqa: E731
    found = benchmark_drop(written(tmp_path, new))
    assert outcomes(found)["SR-1"] == ("not_judged", False)
    assert outcomes(found)["SR-2"] == ("passed", True)


def test_another_mixture_is_a_failed_second_gate(tmp_path):
    def shifted(step):
        return {"source_mix_share/web": 0.9, "source_mix_share/books": 0.1} if step >= 320 else {}

    found = benchmark_drop(written(tmp_path, shifted))
    assert found.answer == "SR-2"
    evidence, *illnesses = changed(found, "SR-2")
    assert {each.metric for each in illnesses} <= {"DATA006"}  # what triage says of the same
    before = [quiet(step)["source_mix_share/web"] for step in range(200, 301)]
    assert evidence.label in ("web", "books")
    assert evidence.step == 320
    web = evidence.before if evidence.label == "web" else 1 - evidence.before
    assert web == pytest.approx(np.mean(before))
    assert f"{0.9 - np.mean(before):.2g} moved" in evidence.sentence  # two shares: the distance is that of one of them


def test_filters_duplicates_and_overlap_tell_of_the_data_too(tmp_path):
    daily = {
        "filter_reject_rate/length": (10.0, 25.0),
        "near_dup_rate": (5.0, 12.0),
        "train_val_overlap": (0.5, 4.0),
        "doc_repeat_hotspots": (20.0, 900.0),
        "token_kl_drift": (0.02, 0.4),
    }

    def shifted(step):
        return {name: pair[step > 325] for name, pair in daily.items()} if step % 25 == 0 else {}

    told = changed(benchmark_drop(written(tmp_path, shifted)), "SR-2")
    found = [each for each in told if not each.metric.startswith("DATA")]
    assert {each.metric for each in found} == {name.partition("/")[0] for name in daily}
    assert {each.step for each in found} == {350}
    assert {(each.before, each.after) for each in found} == set(daily.values())


@pytest.mark.parametrize(
    ("name", "value", "since"),
    [
        ("max_attn_logit", 200.0, 330),
        ("output_kl_to_prev", 0.5, 330),
        ("logit_entropy_probe", 1.0, 330),
        ("moe_drop_rate", 9.0, 330),
        ("fixed_probe_loss", 2.9, 330),
        ("nan_inf_events", 2.0, 330),
    ],
)
def test_behaviour_that_changed_is_a_failed_third_gate(name, value, since, tmp_path):
    usual = {
        "max_attn_logit": 12.0,
        "output_kl_to_prev": 0.05,
        "logit_entropy_probe": 2.0,
        "moe_drop_rate": 0.4,
        "fixed_probe_loss": 2.5,
        "nan_inf_events": 0.0,
    }[name]
    found = benchmark_drop(written(tmp_path, lambda step: {name: value if step >= since else usual}))
    assert found.answer == "SR-3"
    assert not found.provisional
    told = {each.metric: each for each in changed(found, "SR-3")}
    assert told[name].step == since
    if name != "nan_inf_events":
        assert (told[name].before, told[name].after) == (usual, value)


def test_an_illness_that_began_in_between_is_behaviour_that_changed(tmp_path):
    spike = lambda step: {"train_loss_raw": 9.0} if 320 <= step < 345 else {}  # noqa: E731
    found = benchmark_drop(written(tmp_path, spike))
    assert found.answer == "SR-3"
    assert ("LOSS001", 320) in {(each.metric, each.step) for each in changed(found, "SR-3")}
    before = lambda step: {"train_loss_raw": 9.0} if 120 <= step < 145 else {}  # noqa: E731
    assert benchmark_drop(written(tmp_path, before)).answer == "SR-4"


def test_an_illness_of_the_evaluations_is_another_side_of_the_fall_and_no_reason(tmp_path):
    worse = {300: 2.2, 350: 2.6, 400: 2.9}
    held_out = lambda step: {"val_loss": worse.get(step, 3 - step / 300)} if step in SCORES else {}  # noqa: E731
    found = benchmark_drop(written(tmp_path, held_out))
    assert found.answer == "SR-4"
    assert "the held-out loss rises too" in " ".join(each.sentence for each in found.gates[0].evidence)


def test_a_gate_that_cannot_be_judged_makes_the_others_provisional(tmp_path, capfd):
    mixed = lambda step: {"source_mix_share/web": 0.9, "source_mix_share/books": 0.1} if step >= 320 else {}  # noqa: E731
    found = benchmark_drop(written(tmp_path, mixed, drop=["eval_artifact_hash"]))
    assert outcomes(found) == {
        "SR-1": ("not_judged", False),
        "SR-2": ("failed", True),
        "SR-3": ("passed", True),
        "SR-4": ("not_reached", True),
    }
    assert found.verdict.startswith("Provisionally SR-2")
    assert "SR-1 could not be judged and comes first" in found.verdict
    assert run(["triage", str(tmp_path), "--benchmark-drop"]) == 1
    out = capfd.readouterr().out
    assert "ckaudit hash" in out
    assert "FAILED, provisional" in out
    quiet_one = benchmark_drop(written(tmp_path, drop=["eval_artifact_hash"]))
    assert outcomes(quiet_one)["SR-4"] == ("advice", True)
    assert "SR-1 could not be judged" in quiet_one.verdict


def test_one_number_of_no_weight_does_not_pass_a_gate(tmp_path):
    steady = lambda step: {"near_dup_rate": 5.0} if step % 25 == 0 else {}  # noqa: E731
    found = benchmark_drop(written(tmp_path, steady, drop=["source_mix_share"]))
    assert outcomes(found)["SR-2"] == ("not_judged", False)
    assert "near_dup_rate alone does not settle it" in found.gates[1].sentence


def test_a_record_without_anything_to_compare_could_not_be_audited(tmp_path, capfd):
    written(tmp_path, drop=["eval_artifact_hash", "source_mix", "max_attn", "grad_", "train_loss"])
    assert run(["triage", str(tmp_path), "--benchmark-drop"]) == 2
    assert run(["triage", str(tmp_path), "--benchmark-drop", "--allow-empty"]) == 0
    assert "Nobody can tell from this record: SR-1, SR-2, SR-3" in capfd.readouterr().out


def test_formats_and_exit_codes(tmp_path, capfd):
    written(tmp_path)
    assert run(["triage", str(tmp_path), "--benchmark-drop", "-f", "json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["schema_version"], told["answer"], len(told["gates"])) == ("ck.benchmark_drop.v1", "SR-4", 4)
    Draft202012Validator(output_schema("ck.benchmark_drop.v1")).validate(told)
    assert run(["triage", str(tmp_path), "--benchmark-drop", "-f", "markdown"]) == 0
    assert "| SR-4 | Does the benchmark" in capfd.readouterr().out
    broken = written(tmp_path, lambda step: {"max_attn_logit": 900.0} if step > 320 else {})
    assert run(["triage", str(broken), "--benchmark-drop"]) == 1
    assert run(["triage", str(broken), "--benchmark-drop", "--fail-on", "sev0"]) == 0
    output = capfd.readouterr().out
    assert output.index("SR-1 Did") < output.index("SR-2 Did") < output.index("SR-3 Did") < output.index("SR-4 Does")
    assert "! max_attn_logit: rises from" in output


def test_a_policy_holds_here_too(tmp_path):
    def spiky(step):
        return {"train_loss_raw": 9.0} if 320 <= step < 345 else {}

    folder = tmp_path / "run"
    folder.mkdir()
    written(folder, spiky)
    policy = tmp_path / "ckaudit.toml"
    policy.write_text('fail_on = "sev0"\n')
    assert run(["triage", str(folder), "--benchmark-drop", "--config", str(policy)]) == 0
    assert run(["triage", str(folder), "--benchmark-drop", "--config", str(policy), "--fail-on", "sev1"]) == 1
    assert run(["triage", str(folder), "--benchmark-drop", "--no-config"]) == 1
    policy.write_text('[severities]\nLOSS001 = "off"\n')
    assert run(["triage", str(folder), "--benchmark-drop", "--config", str(policy)]) == 0


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--since", "5"], "--benchmark-drop"),
        (["--benchmark-drop", "--event", "last"], "one at a time"),
        (["--benchmark-drop", "--step", "5"], "leave it away"),
        (["--benchmark-drop", "--since", "9000"], "steps 1 to 400"),
        (["--benchmark-drop", "--since", "1"], "steps 1 to 400"),
        (["--benchmark-drop", "-f", "sarif"], "terminal, json, markdown"),
    ],
)
def test_what_cannot_be_asked_is_an_error(words, hint, tmp_path, capfd):
    written(tmp_path)
    assert run(["triage", str(tmp_path), *words]) == 2
    assert hint in capfd.readouterr().err


def test_without_scores_a_step_must_be_named(tmp_path):
    written(tmp_path, drop=["microbench_score"])
    with pytest.raises(UsageError, match="microbench_score is not recorded") as told:
        benchmark_drop(tmp_path)
    assert "--since STEP" in told.value.hint
    assert benchmark_drop(tmp_path, since=310).fall.before == 309


def test_a_real_run_whose_scores_rise_has_nothing_to_explain():
    found = benchmark_drop(EXPERTS)
    assert found.fall is None
    assert found.gates == ()
    assert run(["triage", str(EXPERTS), "--benchmark-drop"]) == 0


def test_a_real_run_passes_three_gates_and_says_what_it_lacks():
    found = benchmark_drop(EXPERTS, since=300)
    assert found.answer == "SR-4"
    outcomes = {each.metric: each.said for gate in found.gates for each in gate.evidence}
    assert (
        outcomes["eval_artifact_hash"]
        == outcomes["token_kl_drift"]
        == outcomes["max_attn_logit"]
        == outcomes["moe_drop_rate"]
        == "steady"
    )
    assert outcomes["source_mix_share"] == outcomes["train_val_overlap"] == "too_few"  # measured once, at the end
    assert not any(row.not_applicable for row in found.guide)


def test_the_largest_fall_is_that_of_a_slow_search():
    rng = np.random.default_rng(0)
    for _ in range(60):
        scores = np.round(np.linspace(0.2, 0.8, 9) + 0.02 * rng.standard_normal(9), 3)
        scores[rng.integers(4, 9) :] -= 0.2
        scores = scores.tolist()
        bends = [scores[i - 1] - 2 * scores[i] + scores[i + 1] for i in range(1, 8)]
        noise = 7.0 * 1.4826 * np.median(np.abs(bends - np.median(bends))) / 6**0.5
        pairs = [
            ((scores[i] - scores[j]) / scores[i], i, j)
            for i, j in combinations(range(9), 2)
            if scores[i] == max(scores[: j + 1]) and scores[i] - scores[j] > max(noise, 0.01 * scores[i])
        ]
        found = largest_score_fall(
            run_of(scalars={"microbench_score": {step: {"a": score} for step, score in enumerate(scores, start=1)}})
        )
        if not pairs:
            assert found is None
            continue
        _, top, low = max(pairs)
        assert (found.before, found.high, found.low) == (top + 1, scores[top], scores[low])
        assert scores[found.after - 1] < scores[top]


def test_of_two_benchmarks_the_deeper_fall_is_told_and_the_other_named():
    rows = {step: {"arc": score, "mmlu": score * 100} for step, score in SCORES.items()}
    rows[350]["mmlu"] = rows[400]["mmlu"] = 20.0
    found = largest_score_fall(run_of(scalars={"microbench_score": rows}))
    assert (found.benchmark, found.others, found.is_back) == ("mmlu", ("arc",), None)


def test_a_score_that_comes_back_is_said_to():
    rows = {step: {"arc": score} for step, score in {**SCORES, 400: 0.55}.items()}
    assert largest_score_fall(run_of(scalars={"microbench_score": rows})).is_back == 400


def test_noise_is_no_fall_and_no_shift():
    rng = np.random.default_rng(1)
    falls = shifts = 0
    for _ in range(100):
        scores = 0.5 + 0.02 * rng.standard_normal(20)
        found = largest_score_fall(
            run_of(scalars={"microbench_score": {step: {"a": score} for step, score in enumerate(scores, start=1)}})
        )
        falls += found is not None
        values = 5 + 0.5 * rng.standard_normal(100)
        shifts += shift(np.arange(1, 101), values, 50, 51, ShiftLimits(min_change=0.05)).changed
    assert falls <= 4
    assert shifts <= 2


def test_a_trend_is_followed_and_a_step_out_of_it_is_not():
    steps = np.arange(1, 101)
    line = 0.1 * steps
    for name, values, expected in (("on", line, False), ("out", line + 3.0 * (steps > 60), True)):
        assert shift(steps, values, 50, 61, ShiftLimits(min_change=0.5)).changed is expected, name
    found = shift(steps, line + 3.0 * (steps > 60), 50, 61, ShiftLimits(min_change=0.5))
    # Before: 28 to 50; the later half, 39 to 50, has its median at 44.5, the earlier at 33. The line leads from there to 66.5.
    assert found.before == pytest.approx(4.45)
    assert found.limit == pytest.approx(6.65 + 0.5)
    assert found.after == pytest.approx(0.1 * 66.5 + 3.0)
    assert found.step == 61


def test_one_point_on_each_side_is_compared_by_the_limits_alone():
    steps, values = np.array([100, 200]), np.array([10.0, 12.5])
    assert shift(steps, values, 150, 160, ShiftLimits(min_change=2.0)).changed
    assert not shift(steps, values, 150, 160, ShiftLimits(min_change=3.0)).changed
    assert shift(steps, values, 50, 60, ShiftLimits()) is None
    assert shift(steps, values, 200, 210, ShiftLimits()) is None


def test_only_the_bad_way_counts():
    steps, values = np.arange(1, 41), np.where(np.arange(1, 41) > 20, 1.0, 2.0)
    assert shift(steps, values, 20, 21, ShiftLimits(min_change=0.1, direction="down")).changed
    assert not shift(steps, values, 20, 21, ShiftLimits(min_change=0.1, direction="up")).changed


def test_other_code_after_a_resume_is_told_and_decides_nothing(tmp_path):
    sessions = [{"commit": "one"}, {"commit": "two", "resumed_from": 310}]
    found = benchmark_drop(written(tmp_path, manifest={"sessions": sessions}))
    assert found.answer == "SR-4"
    assert "the run was resumed at step 310 with code two, before it was one" in [
        each.sentence for each in found.gates[0].evidence
    ]


def test_the_user_who_says_since_when_is_believed():
    scores = {step: {"arc": score} for step, score in SCORES.items()}
    made = run_of(scalars={"microbench_score": scores, "max_attn_logit": [10.0] * 200 + [99.0] * 200})
    assert fall_since(made, 201).before == 200
    assert {each.metric for each in changed(benchmark_drop_of(made, since=201), "SR-3")} >= {"max_attn_logit"}
    assert not changed(benchmark_drop_of(made, since=350), "SR-3")


def test_the_guide_is_whole():
    text = " ".join(" ".join(row.facts) for row in GUIDE)
    for number in (
        "83 %",
        "128k",
        "671 billion",
        "37 billion",
        "744 billion",
        "40 billion",
        "256 experts",
        "80 layers",
        "128 tokens",
    ):
        assert number in text


def test_a_held_out_loss_that_was_rising_goes_on_as_before():
    overfit = benchmark_drop(EXPERTS.parent / "overfit_tiny", since=400)
    healthy = benchmark_drop(EXPERTS.parent / "healthy", since=1500)
    sentences = [" ".join(each.sentence for each in found.gates[0].evidence) for found in (overfit, healthy)]
    assert "the held-out loss goes on as before, from 1.924 to 2.08; expected: at most " in sentences[0]
    assert "the held-out loss does not rise with it" in sentences[1]
