"""The parts of the overview, each readable without its chart."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from ckaudit.contract.schema.fleet import Fleet, FleetRun
from ckaudit.reports.fleet import GROUP_HEAD, group_cells, group_values, severity_word
from ckaudit.reports.html.fleet.data import BADGES, MAX_RUNS, checks_of, cut, first_cause, states_of
from ckaudit.reports.markup import Markup, join, tag
from ckaudit.wording import plural

WORDS = {
    "0": ("sev0", "sev0"),
    "1": ("sev1", "sev1"),
    "2": ("sev2", "sev2"),
    "n": ("note", "note"),
    "w": ("well", "well"),
    "?": ("open", "not judged"),
    "-": ("none", "does not apply"),
    "!": ("failed", "not audited"),
}
"""For each letter of `data.LETTERS`, the class of its colour and the word that it means."""
FIRST = 200
"""Number of runs listed or named at once; the script lists the others."""
SHORT = {"?": "open", "-": "-", "!": "-"}
FILTERS = (
    ("", "every run"),
    ("ill", "ill"),
    *((word, word) for word in ("sev0", "sev1", "sev2", "note", "well", "limited", "open")),
)
NOT_AUDITED = (("error", "error"), ("unreadable", "unreadable"))


def causes(fleet: Fleet) -> Iterator[Markup]:
    """Yield what unhealthy runs have in common, or that nothing was found."""
    if not fleet.common_causes:
        yield tag("p", "Nothing that chance would not show as well.", class_="nothing")
        return
    for place, cause in enumerate(fleet.common_causes):
        show = tag(
            "button", f"Show {'it' if len(cause.runs) == 1 else 'these'} below", type="button", class_="only", data_cause=place
        )
        named = [part for run in cause.runs[:FIRST] for part in (tag("code", run), " ")]
        more = [f"and {len(cause.runs) - FIRST:,} more"] if len(cause.runs) > FIRST else []
        names = tag("p", *named, *more, class_="dim")
        yield tag(
            "div",
            tag("h3", tag("code", cause.name), " ", tag("code", cause.value)),
            tag("p", cause.sentence),
            tag("details", tag("summary", f"The {plural(len(cause.runs), 'ill run')}"), names),
            show,
            class_="card shared",
        )


def heat_map(fleet: Fleet) -> Iterator[Markup]:
    """Yield a line for each vital check: its name, its strip of all runs, and how many are in which state."""
    checks = checks_of(fleet)
    if not checks:
        return
    states = [states_of(run, checks) for run in fleet.runs[:MAX_RUNS]]
    yield tag(
        "p",
        "One column a run, in the order of the list below. Point at one to read which run it is, click to find it in the list.",
        class_="answer live-only",
    )
    rows = [_strip(at, check, Counter(letters[at] for letters in states)) for at, check in enumerate(checks)]
    yield tag(
        "figure",
        tag("div", join(rows), class_="strips"),
        tag("p", _legend(), class_="legend"),
        tag("p", "", id="pointed", class_="dim"),
    )


def _strip(at: int, check: str, counts: Counter[str]) -> Markup:
    summary = ", ".join(f"{counts[letter]:,} {word}" for letter, (_, word) in WORDS.items() if counts[letter])
    name = check.replace("_", " ")
    return tag(
        "div",
        tag("span", name, class_="check"),
        tag("canvas", class_="strip", data_check=at, role="img", aria_label=f"{name}: {summary}"),
        tag("span", summary, class_="dim"),
        class_="of-check",
    )


def _legend() -> Markup:
    swatches = (tag("span", tag("span", class_=f"swatch v-{name}", aria_hidden="true"), word) for name, word in WORDS.values())
    return join(list(swatches), " ")


def curves(fleet: Fleet) -> Iterator[Markup]:
    """Yield the losses of the listed runs, with those of a group in front of the others."""
    if not any(run.loss is not None for run in fleet.runs):
        return
    yield tag(
        "figure",
        tag(
            "div",
            tag("label", "by ", tag("select", id="by")),
            tag("label", "in front ", tag("select", id="group")),
            tag("label", tag("input", type="checkbox", id="log", checked=True), "logarithmic"),
            class_="controls",
        ),
        tag("canvas", id="curves", role="img", aria_label="Training losses; the table below has their groups in numbers"),
        tag("p", "", id="near", class_="dim"),
        tag(
            "div",
            tag("table", tag("tbody", id="legend")),
            class_="rows",
            tabindex=0,
            role="region",
            aria_label="Groups of losses",
        ),
        class_="live-only",
    )
    yield Markup("<noscript><p>The losses need scripts.</p></noscript>")


def groups(fleet: Fleet) -> Iterator[Markup]:
    """Yield the requested groups as a table."""
    if fleet.groups:
        head = [*fleet.grouped_by, *GROUP_HEAD]
        rows = [[*group_values(group), *group_cells(group)] for group in fleet.groups]
        body = join([tag("tr", *(tag("td", cell) for cell in row)) for row in rows])
        inside = tag("table", tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head))), tag("tbody", body))
        yield tag("div", inside, class_="rows", tabindex=0, role="region", aria_label="Groups of runs")


def table(fleet: Fleet, links: Mapping[str, str], facts: Sequence[str]) -> Iterator[Markup]:
    """Yield the filters and the list of runs, the most urgent first."""
    runs, checks = fleet.runs[:MAX_RUNS], checks_of(fleet)
    known = {severity_word(run) for run in runs}
    options = [tag("option", word, value=value) for value, word in (*FILTERS, *NOT_AUDITED) if value in {"", "ill", *known}]
    own = [name for name in fleet.grouped_by if name in facts]
    yield tag(
        "div",
        tag("label", "find ", tag("input", type="search", id="find", placeholder="name, cause, code, setting")),
        tag("label", "show ", tag("select", *options, id="severity")),
        tag("button", "All runs", type="button", id="all", hidden=True),
        tag("span", plural(len(runs), "run"), id="counted", role="status"),
        class_="controls live-only",
    )
    heads = [
        ("severity", "severity"),
        ("run", "run"),
        ("since", "since"),
        ("cause", "first cause"),
        *((f"f{at}", name) for at, name in enumerate(own)),
    ]
    columns = [tag("th", tag("button", word, type="button", data_sort=key), scope="col") for key, word in heads]
    columns += [
        tag("th", tag("button", check.replace("_", " "), type="button", data_sort=f"v{at}"), scope="col", class_="check")
        for at, check in enumerate(checks)
    ]
    kinds = ["severity", "run", "since", "because", *("fact" for _ in own), *("check" for _ in checks)]
    widths = tag("colgroup", *(Markup(f'<col class="{kind}">') for kind in kinds))
    rows = [_row(at, run, links.get(run.run, ""), own, checks) for at, run in enumerate(runs[:FIRST])]
    whole = tag("table", widths, tag("thead", tag("tr", *columns)), tag("tbody", join(rows), id="list"))
    yield tag("div", whole, class_="rows tall", tabindex=0, role="region", aria_label="All runs")
    yield tag("button", "Show more", type="button", id="further", class_="live-only", hidden=True)


def _row(at: int, run: FleetRun, link: str, facts: Sequence[str], checks: Sequence[str]) -> Markup:
    word = severity_word(run)
    name = tag("a", run.run, href=quote(link)) if link else tag("span", run.run)
    more = tag("button", "+", type="button", class_="more", aria_expanded="false", aria_label=f"More on {run.run}")
    cells = [
        tag("td", tag("span", word, class_=f"badge {BADGES.get(word, word)}")),
        tag("th", more, " ", name, scope="row"),
        tag("td", "" if run.first_step is None else f"{run.first_step:,}", class_="number"),
        tag("td", first_cause(run), class_="because"),
        *(tag("td", cut(run.facts.get(fact, ""))) for fact in facts),
        *(
            tag("td", SHORT.get(letter, WORDS[letter][1]), class_=f"check v-{WORDS[letter][0]}")
            for letter in states_of(run, checks)
        ),
    ]
    return tag("tr", *cells, data_at=at)
