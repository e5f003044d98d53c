"""Links from a finding to where it is seen best: a tab, a chart on it, a step."""

from collections.abc import Mapping

from ckaudit.contract.panels import Link, Panels
from ckaudit.contract.report import Finding
from ckaudit.reports.html.markup import Markup, tag
from ckaudit.reports.words import interval

Places = Mapping[int, Link]


def places(panels: Panels) -> Places:
    """Return for each finding, by its place in the report, the link to what shows it."""
    return {each.finding: each for each in panels.links}


def to(link: Link | None, words: str) -> Markup:
    """Return `words` as a link, or as they are where nothing shows the finding."""
    if link is None:
        return tag("span", words)
    target = f"#c-{link.chart}" if link.chart else f"#t-{link.tab}"
    return tag("a", words, href=target, data_step=False if link.step is None or not link.chart else link.step)


def finding(each: Finding, link: Link | None) -> Markup:
    """Return a finding as an item of a list, its sentence the link to its chart."""
    parts = [badge(each.severity), " ", tag("code", each.code), " ", to(link, each.message)]
    if steps := interval(each):
        parts.append(tag("span", f" {steps}", class_="dim"))
    if each.where:
        parts.append(tag("span", " in ", tag("code", each.group or each.where), class_="dim"))
    if each.also:
        parts.append(_also(each.also))
    if each.help:
        parts.append(tag("p", each.help, class_="help"))
    return tag("li", *parts)


def badge(severity: str) -> Markup:
    """Return a severity as a word that colour only repeats."""
    return tag("span", severity, class_=f"badge {severity}")


def _also(names: list[str], *, most: int = 40) -> Markup:
    shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    return tag("details", tag("summary", f"and {len(names)} more places"), tag("p", tag("code", shown)))
