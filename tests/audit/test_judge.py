"""Rules applied to runs: folding, skipping, and rules that break."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.audit.judge import apply_rules, merge_hits
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.summaries import needs_of
from ckaudit.metrics import Metric
from ckaudit.rules.rule import Hit, Rule
from ckaudit.run.run import Run
from ckaudit.run.series import Series, single

LOSS = Metric("loss_here", "nats", ("train_loss_raw",), "here", "A loss.", None, lambda run: run.scalar("train_loss_raw"))


def made(name: str, function: object, code: str = "TST001") -> Rule:
    return Rule(code, name, "sev1", (LOSS,), (), "nats", None, "Is it high?", "", function)


def run_with(values: list[float]) -> Run:
    steps = np.arange(1, len(values) + 1)
    return Run(name="here", scalars={"train_loss_raw": single("train_loss_raw", "nats", steps, np.array(values))})


def high(loss: Series) -> Iterator[Hit]:
    for step, value in zip(loss.steps, loss.values[:, 0], strict=True):
        if value > 5:
            yield Hit(
                severity="sev1",
                where="loss",
                first=int(step),
                last=int(step),
                value=float(value),
                message="{where} is {value:.1f}",
            )


def broken(loss: Series) -> Iterator[Hit]:
    raise RuntimeError(f"no good: {len(loss.steps)}")
    yield


def test_a_finding_carries_code_name_and_formatted_message() -> None:
    (finding,) = apply_rules(run_with([1.0, 9.0]), [made("high", high)]).findings
    assert (finding.code, finding.name, finding.message, finding.first_step) == ("TST001", "high", "loss is 9.0", 2)


def test_a_broken_rule_is_an_error_and_stops_no_other() -> None:
    judged = apply_rules(run_with([1.0, 9.0]), [made("broken", broken, "TST000"), made("high", high)])
    assert [check.outcome for check in judged.checks] == ["error", "failed"]
    assert judged.checks[0].detail == "RuntimeError: no good: 2"
    assert len(judged.findings) == 1


def test_a_rule_without_its_need_is_skipped_never_passed() -> None:
    (check,) = apply_rules(Run(name="empty"), [made("high", high)]).checks
    assert (check.outcome, check.reason, check.detail) == ("skipped", "not_recorded", "needs loss_here")


def test_a_rule_graver_than_it_may_be_is_an_error() -> None:
    def too_grave(_: Series) -> Iterator[Hit]:
        yield Hit(severity="sev0", message="stop")

    (check,) = apply_rules(run_with([1.0]), [made("too_grave", too_grave)]).checks
    assert check.outcome == "error"


def test_a_note_alone_does_not_fail_a_rule() -> None:
    def noted(_: Series) -> Iterator[Hit]:
        yield Hit(severity="note", message="by the way")

    (check,) = apply_rules(run_with([1.0]), [made("noted", noted)]).checks
    assert (check.outcome, check.findings) == ("passed", 1)


def dead(where: str, first: int, last: int) -> Hit:
    return Hit(severity="sev2", message="{where} is dead", where=where, first=first, last=last)


def test_equal_hits_at_overlapping_times_become_one() -> None:
    first, second = merge_hits([dead("a", 10, 20), dead("b", 15, 30), dead("c", 25, 28), dead("d", 40, 50)])
    assert (first.where, first.also, first.first, first.last) == ("a", ("b", "c"), 10, 30)
    assert (second.where, second.also, second.first, second.last) == ("d", (), 40, 50)


def test_one_place_twice_is_not_its_own_neighbour() -> None:
    (hit,) = merge_hits([dead("a", 10, 30), dead("b", 12, 14), dead("b", 20, 22)])
    assert hit.also == ("b",)


def test_findings_come_gravest_first_then_by_step() -> None:
    def several(_: Series) -> Iterator[Hit]:
        yield Hit(severity="sev2", message="x", first=1)
        yield Hit(severity="sev1", message="y", first=9)
        yield Hit(severity="sev1", message="z", first=2)

    findings = apply_rules(run_with([1.0]), [made("several", several)]).findings
    assert [finding.message for finding in findings] == ["z", "y", "x"]


def test_a_fact_that_nobody_told_is_named_beside_what_is_missing() -> None:
    rule = replace(made("high", high), facts=(("warmup_steps", "planned_learning_rate"), ("vocabulary",)))
    manifest = Manifest(schema_version="ck.run.v1")
    for told in (None, manifest):
        (check,) = apply_rules(Run("empty", manifest=told), [rule]).checks
        assert check.reason == "not_recorded"
        assert needs_of(check)[1:] == (("warmup_steps", "planned_learning_rate"), ("vocabulary",))
        (check,) = apply_rules(replaced(run_with([9.0]), told), [rule]).checks
        assert (check.outcome, check.reason) == ("failed", None)
    manifest.planned_learning_rate, manifest.vocabulary = [[1, 0.1]], 11
    (check,) = apply_rules(Run("empty", manifest=manifest), [rule]).checks
    assert len(needs_of(check)) == 1


def replaced(run: Run, manifest: Manifest | None) -> Run:
    return Run(run.name, manifest=manifest, scalars=run.scalars)
