"""What happened at which step: findings, events, resumes, and the step at which two runs part."""

from collections.abc import Collection

from ckaudit.contract.panels import Mark
from ckaudit.panels.scene import Scene, metrics_of
from ckaudit.run.seams import resumed


def marks(scene: Scene, names: Collection[str] | None = None, *, most: int = 40) -> list[Mark]:
    """Return the marks of a chart in the order of steps.

    Args:
        scene: The run.
        names: The metrics shown: only findings that rest on them are marked; None: everything that happened is.
        most: Findings at most, the gravest.
    """
    found = [
        Mark(step=each.first_step, until=each.last_step, kind="finding", text=each.message, severity=each.severity,
             code=each.code, finding=place)
        for place, each in enumerate(scene.report.findings)
        if each.first_step is not None and (names is None or set(metrics_of(each)) & set(names))
    ]  # fmt: skip
    found = found[:most] + (_events(scene) if names is None else [])
    return sorted(found, key=lambda mark: mark.step)


def _events(scene: Scene) -> list[Mark]:
    made = [
        Mark(step=each.event_step, kind="event", text=f"a checkpoint was asked for by {', '.join(each.triggers) or 'nobody'}")
        for each in scene.run.events
    ]
    made += [
        Mark(step=int(each.resumed_from or 0), kind="resume", text=f"the run was taken up again after step {each.resumed_from}")
        for each in resumed(scene.run.manifest)
    ]
    pairs = scene.comparison.pairs if scene.comparison else []
    return made + [Mark(step=each.parting.step, kind="parting", text=each.parting.message) for each in pairs[:1] if each.parting]
