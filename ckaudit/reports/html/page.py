"""The whole page: head with its security policy, header, tabs, data and scripts."""

import gzip
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ckaudit.contract.schema.diff import Word
from ckaudit.contract.schema.panels import Beside, Chart, Panels, Tab
from ckaudit.contract.schema.report import Answer, Report
from ckaudit.errors import CkauditError
from ckaudit.optional import install_command
from ckaudit.reports.html.charts import blocks, figure, run_sign
from ckaudit.reports.html.findings import badge, codes, without_messages
from ckaudit.reports.html.first_page import QUESTION, overview
from ckaudit.reports.markup import Markup, join, tag
from ckaudit.reports.svg.picture import run_names, word_of_comparison
from ckaudit.reports.svg.style import style_sheet
from ckaudit.reports.words import is_limited

SIGNATURE = '<!doctype html>\n<html lang="en"><!-- ckaudit report -->'  # identifies a file as ours

# A word, and a sign that is recognizable without colour.
SIGNS = {"good": ("✓", "good"), "watch": ("!", "watch"), "bad": ("✕", "bad"), "unknown": ("?", "not known")}

MISSING_SHOWN = 2  # more would be too much text

SHADES: dict[Word, str] = {"better": "clear", "same": "clear", "within_noise": "clear", "worse": "sev1", "different": "sev2"}

# The scripts in the file: the charting library, a few scripts of our own, and the policy that allows only these.
OWN = ("draw.js", "shapes.js", "tabs.js")

LIBRARY = Path("package_data", "plotly.min.js")

EMPTY = ""  # the library creates one empty style sheet and fills it through the object model


class Library(NamedTuple):
    """The charting library as embedded in a report.

    Attributes:
        packed: Its script as gzip in base64.
        digest: Digest of the unpacked script.
    """

    packed: str
    digest: str


@cache
def library() -> Library:
    """Return the charting library from its package, without importing the package.

    Raises:
        CkauditError: If it is not installed.
    """
    spec = find_spec("plotly")
    place = Path(spec.origin).with_name(LIBRARY.parts[0]) / LIBRARY.name if spec and spec.origin else None
    if place is None or not place.is_file():
        raise CkauditError("the pictures of a report are drawn by plotly, which is not installed", hint=install_command("report"))
    script = place.read_bytes()
    return Library(b64encode(gzip.compress(script, 4, mtime=0)).decode(), digest(script.decode()))


def own_file(name: str) -> str:
    """Return one of our own scripts or style sheets."""
    return files("ckaudit.reports.html").joinpath(name).read_text(encoding="utf-8")


def whole_style() -> str:
    """Return the style sheet of a report: colours, SVG charts, and the page."""
    return style_sheet() + own_file("report.css")


def digest(script: str) -> str:
    """Return the name of a script in a content security policy: its SHA-256 (W3C Content Security Policy 3, section 2.3.1)."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def policy(library_digest: str) -> str:
    """Return the security policy of the file: its own scripts and styles, embedded images, and no network at all."""
    scripts = " ".join([library_digest, *(digest(own_file(name)) for name in (*OWN, "start.js"))])
    styles = f"{digest(whole_style())} {digest(EMPTY)}"
    parts = ["default-src 'none'", f"script-src {scripts}", f"style-src {styles}", "img-src data:", "base-uri 'none'"]
    return "; ".join([*parts, "form-action 'none'"])


def script_bodies(packed: str) -> Markup:
    """Return all scripts in execution order; the packed library is data until the browser unpacks it."""
    runs = "\n".join(f"<script>{own_file(name)}</script>" for name in (*OWN, "start.js"))
    return Markup(f'<script type="application/gzip" id="library">{packed}</script>\n{runs}')


def render(report: Report, panels: Panels) -> str:
    """Return a report and its charts as one HTML file.

    Raises:
        CkauditError: If the charting library is not installed.
    """
    parts = [_panel("overview", overview(report, panels))]
    parts += [_panel(tab.id, section(tab, report, panels), tab.kind) for tab in panels.tabs]
    whole = join(
        [
            _head(panels),
            tag("body", _header(report, panels), _tabs(panels), tag("main", join(parts), id="main"), _scripts(panels)),
        ]
    )
    return f"{SIGNATURE}\n{whole}</html>\n"


def _head(panels: Panels) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy(library().digest)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{' and '.join(panels.subjects)}: ckaudit"),
        tag("style", Markup(whole_style())),
    )


def _header(report: Report, panels: Panels) -> Markup:
    at = f" at step {report.step}" if report.step is not None else ""
    limited = tag("span", "limited", class_="badge sev2")
    severity = limited if is_limited(report) else _severity(report.severity)
    beside = panels.beside if len(panels.subjects) > 1 else None
    whose = [run_sign(0, run_names(panels.subjects)), " "] if beside else []
    return tag(
        "header",
        tag("a", "To the answers", href="#main", class_="skip"),
        tag("p", *_named(panels), f"{at}, by {report.tool}", class_="dim"),
        tag("h1", *whose, severity, " ", report.verdict),
        *(_beside(beside, panels) if beside else []),
        tag("p", "On paper: of each question the first pictures; the file itself has all.", class_="paper dim"),
        tag("button", "Dark", type="button", id="theme", aria_pressed="false"),
        tag("noscript", tag("p", "Most pictures need scripts; everything else is here.")),
    )


def _named(panels: Panels) -> list[Markup]:
    first, *others = [tag("code", subject) for subject in panels.subjects]
    return [first, *(part for other in others for part in (Markup(" beside "), other))]


def _severity(severity: str | None) -> Markup:
    return badge(severity) if severity else tag("span", "no finding", class_="badge clear")


def _beside(beside: Beside, panels: Panels) -> Iterator[Markup]:
    """Yield the verdict of the second run, and how it compares with the first."""
    yield tag(
        "p", run_sign(1, run_names(panels.subjects)), " ", _severity(beside.severity), " ", beside.verdict, class_="verdict"
    )
    word, sentence = word_of_comparison(beside)
    yield tag(
        "p", tag("span", word, class_=f"badge {SHADES.get(beside.word, 'note')}"), f" B against A: {sentence}", class_="verdict"
    )


def _tabs(panels: Panels) -> Markup:
    """Return the tabs: the questions, and the dashboards for routine checks."""
    first = _tab("overview", Markup(""), QUESTION, chosen=True)
    kinds = {kind: [tab for tab in panels.tabs if tab.kind == kind] for kind in ("question", "dashboard")}
    questions = [_tab(tab.id, sign(tab.word), tab.question) for tab in kinds["question"]]
    views = [_tab(tab.id, Markup(""), tab.question) for tab in kinds["dashboard"]]
    lists = [tag("div", first, *questions, role="tablist", aria_label="Questions")]
    lists += [tag("div", *views, role="tablist", aria_label="Views")] if views else []
    return tag("nav", *lists, aria_label="Tabs")


def _tab(name: str, before: Markup, words: str, *, chosen: bool = False) -> Markup:
    return tag(
        "a",
        before,
        tag("span", words),
        href=f"#t-{name}",
        id=f"tab-{name}",
        role="tab",
        aria_controls=f"t-{name}",
        aria_selected="true" if chosen else "false",
        tabindex=0 if chosen else -1,
    )


def _panel(name: str, parts: Iterator[Markup], kind: str = "question") -> Markup:
    labels = {"role": "tabpanel", "aria_labelledby": f"tab-{name}"}
    return tag("section", *parts, id=f"t-{name}", class_=kind, tabindex=0, **labels)


def _scripts(panels: Panels) -> Markup:
    return join([tag("div", id="said", role="status", class_="hidden"), blocks(panels), script_bodies(library().packed)])


# One tab: a question, its answer, the charts, the findings, and what could not be drawn.
def section(tab: Tab, report: Report, panels: Panels) -> Iterator[Markup]:
    """Yield the parts of a tab."""
    yield tag("h2", tab.question)
    yield tag("p", *([sign(tab.word), " "] if tab.kind == "question" else []), tab.answer, class_="answer")
    yield from codes(report, tab.findings)
    if tab.charts:
        yield tag("div", *_figures(tab.charts, run_names(panels.subjects), len(report.findings)), class_="charts")
    if tab.answers:
        answers = tag("dl", *(_answer(answer, report) for answer in tab.answers), class_="facts")
        yield tag("details", tag("summary", f"The questions behind it: {len(tab.answers)}"), answers)
    if tab.missing:
        lines = tag("ul", *(tag("li", sentence) for sentence in tab.missing))
        title = f"Not drawn, for want of data: {len(tab.missing)}"
        yield tag("details", tag("summary", title), lines, class_="missing", open=len(tab.missing) <= MISSING_SHOWN)


def sign(word: str) -> Markup:
    """Return the one-word answer with its sign."""
    mark, word_shown = SIGNS[word]
    return tag("span", tag("span", mark, aria_hidden="true"), tag("span", word_shown, class_="word"), class_=f"sign {word}")


def _answer(answer: Answer, report: Report) -> Markup:
    """Return a question with its answer; findings that it quotes are in the list of findings."""
    sentence = without_messages(answer.sentence, report)
    return tag(
        "div", tag("dt", tag("code", answer.id), f" {answer.question}"), tag("dd", f"{answer.word.replace('_', ' ')}: {sentence}")
    )


def _figures(charts: list[Chart], names: list[str], findings: int) -> Iterator[Markup]:
    """Yield the charts; those that show the same for two runs are side by side."""
    waiting: list[Markup] = []
    for place, (chart, after) in enumerate(zip(charts, [*charts[1:], None], strict=True)):
        drawn = figure(chart, names, findings, is_first=not place)
        if chart.run == 0 and after is not None and after.run == 1:
            waiting = [drawn]
        elif chart.run == 1 and waiting:
            yield tag("div", *waiting, drawn, class_="pair")
            waiting = []
        else:
            yield drawn
