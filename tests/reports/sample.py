"""Five reports that between them hold everything a renderer can meet."""

from msgspec.structs import replace

from ckaudit.contract.schema.report import (
    Accepted,
    Chart,
    Check,
    Diagnosis,
    Evidence,
    Finding,
    PolicyUsed,
    Report,
    Severity,
    SkipReason,
    Suppressed,
)

HOSTILE = "w\x1b[31m]0;x\x07[red]<b>|`@all\u202e\u2028\x9b\ud800"
TOOL = "ckaudit 0.1.0"


def check(code: str, name: str, severity: Severity = "sev2", findings: int = 0) -> Check:
    title = f"Whether {name.replace('_', ' ')} can be seen."
    outcome = "failed" if findings else "passed"
    return Check(code=code, name=name, title=title, severity=severity, outcome=outcome, findings=findings)


def skipped(code: str, reason: SkipReason, detail: str | None = None, severity: Severity = "sev2") -> Check:
    name = f"check_{code.lower()}"
    title = f"Whether {code} holds."
    return Check(code=code, name=name, title=title, severity=severity, outcome="skipped", reason=reason, detail=detail)


def ill() -> Report:
    """A run whose loss explodes, with two causes, one finding that neither explains, and pictures."""
    explosion = Finding(
        code="LOSS002",
        name="loss_divergence",
        severity="sev1",
        message="loss is 9.41 at step 520, 3.0x its median of 3.12, limit 1.5x",
        where="loss",
        first_step=480,
        last_step=600,
        worst_step=520,
        value=9.41,
        limit=4.68,
        unit="nats",
        points=13,
    )
    spike = Finding(
        code="GRAD002",
        name="exploding_gradient",
        severity="sev1",
        message="the gradient norm is 145, 60x its median of 2.4, limit 10x",
        where="blocks.3.attention.query.weight",
        first_step=476,
        last_step=476,
        value=145.0,
        limit=24.0,
        also=["blocks.2.attention.query.weight", "blocks.1", "blocks.0", "head"],
    )
    uniform = Finding(
        code="ATT003",
        name="uniform_head",
        severity="sev2",
        message="head 2 of blocks.1 spreads its attention evenly: entropy 0.998 of the most there can be, limit 0.98",
        where="blocks.1.head.2",
        first_step=200,
        last_step=600,
        worst_step=400,
        value=0.998,
        limit=0.98,
    )
    rate = Diagnosis(
        cause="learning_rate_too_high",
        title="The learning rate is too high for this stage",
        confidence=0.87,
        severity="sev1",
        symptom=explosion.message,
        knob="Halve the peak learning rate, or warm up twice as long",
        inspect="scalars lr, loss and grad_norm between steps 440 and 520; blocks.3.attention.query.weight",
        runbook="Keep the checkpoint of step 450, stop, and replay 450 to 500 with half the rate",
        evidence=[
            Evidence(sentence="the gradient norm rose 60x four steps before the loss", weight=1.5, reference="GRAD002"),
            Evidence(sentence="update/weight is 0.14, above 0.1", weight=0.9, reference="update_to_weight"),
            Evidence(sentence="the loss does not fall when the rate decays", weight=-0.6),
        ],
        explains=["GRAD002", "LOSS002"],
        where="blocks.3.attention.query.weight",
        first_step=476,
    )
    batch = Diagnosis(
        cause="bad_batch",
        title="One batch is unlike the others",
        confidence=0.34,
        severity="sev1",
        symptom=spike.message,
        knob="Skip the batch and look at it",
        inspect="data.batch_id at step 476",
        runbook="Write down the batch id before the shard is gone",
        evidence=[
            Evidence(
                sentence="the batch hash of step 476 was never seen before or after", weight=0.3, reference="data.input_hash"
            )
        ],
        explains=["GRAD002"],
        first_step=476,
    )
    steps = list(range(10, 610, 10))
    loss = [4.2 - 0.02 * index for index in range(46)] + [
        9.41,
        "NaN",
        8.9,
        None,
        8.4,
        8.1,
        7.9,
        7.7,
        7.6,
        7.5,
        7.4,
        7.3,
        7.3,
        7.3,
    ]
    return Report(
        schema_version="ck.report.v1",
        tool=TOOL,
        command="triage",
        subject="runs/nano",
        verdict="The learning rate is too high for this stage, since step 476, in blocks.3.attention.query.weight",
        severity="sev1",
        step=600,
        state={"loss": 7.3, "grad_norm": 12.25, "learning_rate": 0.003, "tokens_seen": 4915200.0, "update_to_weight": "NaN"},
        diagnoses=[rate, batch],
        response=["sev1: contain it; checkpoints before step 476 are good", "save: the batch b7 at step 476"],
        findings=[explosion, spike, uniform],
        checks=[
            check("ATT003", "uniform_head", findings=1),
            check("GRAD001", "vanishing_gradient"),
            check("GRAD002", "exploding_gradient", "sev1", findings=1),
            check("LOSS002", "loss_divergence", "sev1", findings=1),
            skipped("MOE001", "not_applicable", "no experts"),
            skipped("OPT001", "not_recorded", "needs optimizer_groups", "sev1"),
            skipped("OPT002", "not_recorded", "needs optimizer_groups, learning_rate"),
            skipped("PAR001", "not_recorded", "needs parity"),
            skipped("VAL001", "too_few_points", "2 of 3 evaluations"),
        ],
        charts=[
            Chart(name="loss", title="Does the loss fall?", unit="nats", labels=[str(step) for step in steps], values=loss),
            Chart(
                name="gradient_waterfall",
                title="Does the gradient reach the first block?",
                unit="1",
                labels=["blocks.0", "blocks.1", "blocks.2", "blocks.3", "blocks.4", "blocks.5"],
                values=[0.031, 0.42, 2.5, 145.0, "Infinity", None],
            ),
        ],
        notes=["There is no checkpoint at step 610: judged at the latest before it, step 600."],
        files=118,
    )


def clean() -> Report:
    """A run with nothing wrong."""
    return Report(
        schema_version="ck.report.v1",
        tool=TOOL,
        command="triage",
        subject="runs/healthy",
        verdict="Nothing found in 3 checks.",
        step=1000,
        state={"loss": 2.25},
        checks=[
            check("GRAD001", "vanishing_gradient"),
            check("GRAD002", "exploding_gradient"),
            check("LOSS002", "loss_divergence"),
        ],
        files=40,
    )


def invalid() -> Report:
    """Six violations in three files, one of them with a name made to do harm."""
    first, second = "analysis_checkpoint_step_00000100.json", "analysis_checkpoint_step_00000200.json"
    findings = [
        Finding(
            code="SCH004",
            name="wrong_type",
            severity="sev1",
            message="norm is a string",
            file=first,
            pointer="/gradients/blocks.0.weight/norm",
            line=41,
            expected='a number, "NaN", "Infinity" or "-Infinity"',
            found='"abc"',
            help="See the field in schemas/.",
        ),
        Finding(
            code="SCH003",
            name="missing_field",
            severity="sev1",
            message="step is missing",
            file=first,
            pointer="/step",
            line=1,
            help="Write the field.",
        ),
        Finding(
            code="SYN009",
            name="bare_nonfinite",
            severity="sev1",
            message="NaN stands bare",
            file=second,
            pointer="/loss/train",
            line=7,
            expected='"NaN"',
            found="NaN",
        ),
        Finding(
            code="SCH004",
            name="wrong_type",
            severity="sev1",
            message=f"the tensor {HOSTILE} has a list for a norm",
            file=second,
            pointer=f"/gradients/{HOSTILE}/norm",
            where=HOSTILE,
            line=12,
        ),
        Finding(
            code="SYN005", name="truncated", severity="sev1", message="the file ends in the middle", file="odd,name:100%\n.json"
        ),
        Finding(
            code="SCH008",
            name="unknown_field",
            severity="sev2",
            message="nrom is not part of this version",
            file=first,
            pointer="/gradients/blocks.0.weight/nrom",
            line=44,
        ),
    ]
    return Report(
        schema_version="ck.report.v1",
        tool=TOOL,
        command="validate",
        subject="runs/broken",
        verdict="6 violations in 3 of 5 files.",
        severity="sev1",
        findings=findings,
        checks=[
            check("SCH003", "missing_field", "sev1", 1),
            check("SCH004", "wrong_type", "sev1", 2),
            check("SCH008", "unknown_field", "sev2", 1),
            check("SYN005", "truncated", "sev1", 1),
            check("SYN009", "bare_nonfinite", "sev1", 1),
            check("SYN010", "duplicate_key", "sev1"),
        ],
        files=5,
    )


def empty() -> Report:
    """A run that recorded nothing that could be judged."""
    return Report(
        schema_version="ck.report.v1",
        tool=TOOL,
        command="triage",
        subject="runs/silent",
        verdict="Nothing could be judged.",
        checks=[
            skipped("GRAD001", "not_recorded", "gradients.*.norm"),
            skipped("GRAD002", "not_recorded", "gradients.*.norm", "sev1"),
            skipped("LOSS002", "too_few_points", "1 of 50 points", "sev1"),
            skipped("MOE001", "disabled"),
        ],
        files=1,
    )


def gated() -> Report:
    """A run with one new finding, two accepted ones, and an entry of the baseline that matches nothing."""
    report = ill()
    explosion, spike, uniform = report.findings
    checks = {each.code: each for each in report.checks}
    checks["ATT003"] = replace(checks["ATT003"], outcome="passed", findings=0, suppressed=1)
    checks["GRAD002"] = replace(checks["GRAD002"], outcome="passed", findings=0, suppressed=1)
    gone = Accepted(
        command="triage",
        code="GRAD001",
        name="vanishing_gradient",
        severity="sev2",
        message="blocks.0 gets less",
        where="blocks.0",
    )
    return replace(
        report,
        diagnoses=report.diagnoses[:1],
        response=[f"save: the batch {HOSTILE} at step 476"],
        findings=[explosion],
        checks=list(checks.values()),
        charts=[],
        policy=PolicyUsed(
            file="ckaudit.toml",
            scale="nano",
            stage="early",
            profiles=["early"],
            changes=["loss_spike.k = 8", "ignore ATT003"],
            fail_on="sev2",
        ),
        baseline="known.json",
        suppressed=[
            Suppressed(finding=spike, by="baseline", reason="accepted in known.json"),
            Suppressed(finding=uniform, by="policy", reason=f"head 2 is spare | {HOSTILE}", until="2027-01-31"),
        ],
        stale=[gone],
    )


SAMPLES = {"ill": ill, "clean": clean, "invalid": invalid, "empty": empty, "gated": gated}
