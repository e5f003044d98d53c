"""A made-up fleet for the overview: ill, well, limited, not audited, and with names that mean harm."""

from ckaudit.contract.schema.fleet import CommonCause, Curve, Fleet, FleetFinding, FleetGroup, FleetRun, VitalState
from tests.reports.html.drawn import HOSTILE

CHECKS = ("loss_finite", "loss_falls", "gradient_size", "attention")
STATES: tuple[VitalState, ...] = ("sev0", "sev1", "sev2", "note", "well", "not_judged", "not_applicable", "disabled")


def run(number: int, name: str = "") -> FleetRun:
    """Return one run; every third is ill, every seventh was not judged in full."""
    ill = number % 3 == 0
    steps = list(range(0, 900, 3))
    values = [2.0 + 8.0 / (1 + step / 50) + (0.02 * step if ill and step > 500 else 0.0) for step in steps]
    where = name or f"runs/{number:04d}"
    return FleetRun(
        run=where,
        status="audited",
        severity="sev1" if ill else None,
        judged="limited" if number % 7 == 1 else "all",
        verdict=f"The loss of {where} climbs" if ill else "No illness",
        cause="learning_rate_too_high" if ill else None,
        cause_title="The learning rate is too high." if ill else None,
        confidence=0.91 if ill else None,
        knob="Halve it" if ill else None,
        first_step=500 if ill else None,
        vital={check: STATES[(number + at) % len(STATES)] for at, check in enumerate(CHECKS)},
        findings=[FleetFinding(code="LOSS001", name="climbs", severity="sev1", message=f"{where} climbs", first_step=500)] * ill,
        loss=None if number % 11 == 5 else Curve(steps=steps, values=[*values[:-1], "NaN" if ill else values[-1]]),
        facts={"config.lr": str([0.1, 0.01, 0.001][number % 3]), "node": f"gpu-{number % 4}", "seed": str(number)},
    )


def fleet(count: int = 60, *, hostile: bool = False) -> Fleet:
    """Return a fleet of so many runs and one that could not be audited."""
    runs = [run(number, f"runs/{''.join(HOSTILE)}{number}" if hostile else "") for number in range(count)]
    bad = FleetRun(run="logs/broken.csv", status="unreadable", problem="No number is in it", verdict="Could not be audited")
    ill = [one for one in runs if one.severity]
    runs = [*ill, bad, *(one for one in runs if not one.severity)]
    cause = CommonCause(
        field="config",
        name="config.lr",
        value="0.1",
        code="LOSS001",
        sentence=f"LOSS001: {len(ill)} of {len(ill)} runs with config.lr 0.1, 0 of the others.",
        runs=[one.run for one in ill],
        ill_with=len(ill),
        all_with=len(ill),
        ill_without=0,
        all_without=count - len(ill),
        p_value=1e-12,
        adjusted_p=1e-9,
        tested=100,
    )
    return Fleet(
        schema_version="ck.fleet.v1",
        tool="ckaudit 0",
        subject=["".join(HOSTILE) if hostile else "runs/*"],
        verdict=f"{len(ill)} of {count} runs are ill",
        severity="sev1",
        runs=runs,
        common_causes=[cause],
        grouped_by=["config.lr"],
        groups=[
            FleetGroup(
                values=["0.1"], runs=len(ill), ill=len(ill), share=1.0, cause="learning_rate_too_high", with_cause=len(ill)
            )
        ],
        audited=count,
        notes=["one file was passed over"],
        dataset="ckaudit-fleet",
    )
