"""The tab on checks that could not judge, and on what to record for them."""

from collections import Counter

from msgspec.structs import replace

from ckaudit.contract.schema.panels import Answered, Chart, Trace
from ckaudit.contract.summaries import most_missed
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import categories
from ckaudit.panels.tab import TabBuilder, tab, why_missing


@tab(90)
def unjudged(builder: TabBuilder) -> tuple[Answered, str]:
    """What could not be judged?"""
    checks = builder.scene.report.checks
    skipped = [check for check in checks if check.outcome in ("skipped", "error")]
    counts = Counter(check.reason or "broke" for check in skipped)
    if counts:
        builder.add(_bars("skipped", "Why were rules skipped?", dict(counts.most_common()), "rules"))
    missed = dict(most_missed(checks, top=12))
    if missed:
        builder.add(_bars("missed", "What do most rules wait for?", missed, "rules"))
    shares: dict[str, float] = {}
    for category in categories():
        known = [bool(metrics()[name](builder.scene.run)) for name in category.entries]
        shares[category.name] = round(100 * sum(known) / len(known), 1)
    trace = Trace(name="recorded", x=list(shares), y=list(shares.values()))
    builder.add(
        Chart(id="recorded", title="How much of the catalogue was recorded?", shape="bars", unit="%", x="part", traces=[trace])
    )
    if builder.scene.other is not None:
        builder.charts = [replace(chart, run=0) for chart in builder.charts]
    for name in dict.fromkeys(part for thing in missed for part in thing.split(" or ")):
        builder.add_missing(why_missing(builder.scene.run, name) if name in metrics() else "")
    for check in skipped:
        detail = f", {check.detail}" if check.detail else ""
        builder.add_missing(f"{check.code} {check.name}: {check.reason or 'it broke'}{detail}")
    if not skipped:
        return "good", f"All {len(checks)} rules could judge."
    reasons = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in counts.most_common())
    return "unknown", f"{len(skipped)} of {len(checks)} rules could not judge: {reasons}."


def _bars(name: str, title: str, counts: dict[str, int], unit: str) -> Chart:
    trace = Trace(name=unit, x=list(counts), y=list(counts.values()))
    return Chart(id=name, title=title, shape="bars", unit=unit, x="reason", traces=[trace])
