"""Findings on the page: each is shown once, and its code links to it from everywhere else."""

from collections.abc import Iterator, Mapping, Sequence

from ckaudit.contract.schema.panels import Link, Panels
from ckaudit.contract.schema.report import SEVERITIES, Diagnosis, Finding, Report
from ckaudit.reports.markup import Markup, tag
from ckaudit.reports.words import interval

ALSO_SHOWN = 40

CODES_SHOWN = 5  # before a chart: more would be hard to read

Places = Mapping[int, Link]


def badge(severity: str) -> Markup:
    """Return a severity as a word; the colour only repeats it."""
    return tag("span", severity, class_=f"badge {severity}")


def finding_links(panels: Panels) -> Places:
    """Return the link to the best view of each finding, by its place in the report: a tab, a chart in it, a step."""
    return {link.finding: link for link in panels.links}


def link_to(link: Link | None, words: str) -> Markup:
    """Return `words` as a link, or unchanged if nothing shows the finding."""
    if link is None:
        return tag("span", words, class_="what")
    target = f"#c-{link.chart}" if link.chart else f"#t-{link.tab}"
    step = False if link.step is None or not link.chart else link.step
    return tag("a", words, href=target, class_="what", data_step=step)


def finding_item(place: int, finding: Finding, link: Link | None) -> Markup:
    """Return a finding as a list item whose sentence links to its chart."""
    parts = [badge(finding.severity), " ", tag("code", finding.code), " ", link_to(link, finding.message)]
    if steps := interval(finding):
        parts.append(tag("span", f" {steps}", class_="dim"))
    if finding.where:
        parts.append(tag("span", " in ", tag("code", finding.group or finding.where), class_="dim"))
    if finding.also:
        more = f" and {len(finding.also) - ALSO_SHOWN} more" if len(finding.also) > ALSO_SHOWN else ""
        shown = ", ".join(finding.also[:ALSO_SHOWN]) + more
        parts.append(tag("details", tag("summary", f"and {len(finding.also)} more places"), tag("p", tag("code", shown))))
    if finding.help:
        parts.append(tag("p", finding.help, class_="help"))
    return tag("li", *parts, id=f"f-{place}", tabindex=-1)


def by_cause(report: Report) -> list[tuple[Diagnosis | None, list[int]]]:
    """Return the places of the findings under the likeliest cause that explains each; those without a cause come last."""
    groups: list[tuple[Diagnosis | None, list[int]]] = [(diagnosis, []) for diagnosis in report.diagnoses]
    rest: list[int] = []
    for place, finding in enumerate(report.findings):
        of_cause = (places for cause, places in groups if cause is not None and finding.code in cause.explains)
        next(of_cause, rest).append(place)
    return [(cause, places) for cause, places in [*groups, (None, rest)] if places]


def without_messages(sentence: str, report: Report) -> str:
    """Return a sentence in which the messages of quoted findings are replaced by their codes, because the list shows them."""
    quoted_findings = [finding for finding in report.findings if finding.message in sentence]  # only a few of many
    for finding in sorted(quoted_findings, key=lambda finding: -len(finding.message)):
        quoted = f"{finding.code}: {finding.message}"
        sentence = sentence.replace(quoted, finding.code).replace(f": {finding.message}", f": {finding.code}")
        sentence = sentence.replace(finding.message, finding.code) if finding.message else sentence
    return sentence


def all_findings(report: Report, where: Places, *, beside: bool = False) -> Iterator[Markup]:
    """Yield the list of all findings, grouped by cause if there are several groups; beside another run, it names their run."""
    whose = " in A" if beside else ""
    yield tag("h3", f"Findings{whose}: {len(report.findings)}" if report.findings else f"No findings{whose}")
    groups = by_cause(report)
    for cause, places in groups:
        if len(groups) > 1:
            yield tag("h4", cause.title if cause else "Not explained by a cause")
        grave = [place for place in places if report.findings[place].severity != "note"]
        notes = [place for place in places if place not in grave]
        yield _listed(report, grave or notes, where)
        if grave and notes:
            yield tag("details", tag("summary", f"Notes: {len(notes)}"), _listed(report, notes, where))


def _listed(report: Report, places: Sequence[int], where: Places) -> Markup:
    return tag("ul", *(finding_item(place, report.findings[place], where.get(place)) for place in places), class_="findings")


def codes(report: Report, places: Sequence[int]) -> list[Markup]:
    """Return the findings of a tab as a short list of codes that link to them; empty if there are none."""
    groups: dict[str, list[int]] = {}
    for place in places:
        if place < len(report.findings):
            groups.setdefault(report.findings[place].code, []).append(place)
    if not groups:
        return []
    items = [_code(report, same) for same in list(groups.values())[:CODES_SHOWN]]
    more = [tag("li", f"and {len(groups) - CODES_SHOWN} more")] if len(groups) > CODES_SHOWN else []
    return [tag("ul", *items, *more, class_="codes")]


def _code(report: Report, places: Sequence[int]) -> Markup:
    findings = [report.findings[place] for place in places]
    worst = min((finding.severity for finding in findings), key=SEVERITIES.index)
    steps = [finding.first_step for finding in findings if finding.first_step is not None]
    times = f" x{len(findings)}" if len(findings) > 1 else ""
    since = f" step {min(steps)}" if steps else ""
    return tag(
        "li", badge(worst), " ", tag("a", findings[0].code, href=f"#f-{places[0]}"), tag("span", f"{times}{since}", class_="dim")
    )
