"""The overview of a fleet as a file: safe, complete without scripts, small, and with the way to each report."""

import hashlib
import json
import re
from base64 import b64encode
from html.parser import HTMLParser

from msgspec.structs import replace

from ckaudit.contract.schema.fleet import Curve, FleetRun
from ckaudit.reports import render
from ckaudit.reports.html.fleet import data, page
from ckaudit.reports.html.fleet.sections import FIRST
from tests.reports.html.drawn import HOSTILE
from tests.reports.html.fleet_drawn import CHECKS, fleet


class Parts(HTMLParser):
    """Takes note of elements, addresses and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def test_policy_names_every_script_and_style_and_no_style_stands_in_an_element() -> None:
    html = page(fleet())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1].replace("&#x27;", "'")
    assert policy.startswith("default-src 'none'")
    for body in re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", html, re.DOTALL):
        assert f"'sha256-{b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" in policy
    parts = Parts(html)
    assert not [
        attributes for _, attributes in parts.tags if "style" in attributes or any(name.startswith("on") for name in attributes)
    ]
    assert not re.findall(r'(?:src|href)="(?!#)', html)
    assert "https://" not in html


def test_hostile_names_are_text() -> None:
    html = page(fleet(hostile=True))
    clean = [tag for tag, _ in Parts(page(fleet())).tags]
    assert [tag for tag, _ in Parts(html).tags] == clean
    assert "\x1b" not in html
    assert not [word for word in HOSTILE if "<" in word and word in html]


def test_everything_of_the_first_runs_is_there_without_scripts() -> None:
    shown = fleet()
    words = Parts(page(shown)).words
    for one in shown.runs:
        assert one.run in words
    for sentence in (shown.verdict, shown.common_causes[0].sentence, "No number is in it", "one file was passed over"):
        assert sentence in words
    for check in CHECKS:
        states = [one.vital[check] for one in shown.runs if one.vital]
        assert f"{states.count('sev0'):,} sev0, {states.count('sev1'):,} sev1" in words
    assert "The learning rate is too high (very likely, 0.91)" in words


def test_many_runs_are_listed_in_part_and_kept_in_bounds() -> None:
    shown = fleet(data.MAX_RUNS + 500)
    html = page(shown)
    assert html.count("<tr data-at=") == FIRST
    assert "501 runs more are not" in Parts(html).words
    assert len(html) < 6_000_000
    assert len(page(fleet(1000))) < 1_500_000


def test_rows_open_reports_or_show_the_command_that_makes_one() -> None:
    shown = fleet(6)
    html = page(shown, {"runs/0000": "reports/a b&c.html", "runs/0003": "javascript:alert(1)"})
    links = [attributes["href"] for tag, attributes in Parts(html).tags if tag == "a" and not attributes["href"].startswith("#")]
    assert links == ["reports/a%20b%26c.html", "javascript%3Aalert%281%29"]
    known = json.loads(re.search(r'id="d-fleet">(.*?)</script>', html, re.DOTALL)[1])
    assert [run["command"] for run in known["runs"][:1]] == ["ckaudit report runs/0000"]
    of_several = FleetRun(run="log.csv#it's one", source="log.csv", status="audited")
    assert data.report_command(of_several) == "ckaudit report log.csv --run 'it'\"'\"'s one'"


def test_a_thinned_curve_keeps_its_ends_and_its_extremes() -> None:
    values = [3.0 - step / 1000 for step in range(1000)]
    values[417], values[880] = 91.5, -4.0
    steps, thinned = data._thinned(Curve(steps=list(range(1000)), values=values))
    assert len(steps) <= 2 * data.MAX_POINTS
    assert (steps[0], steps[-1]) == (0, 999)
    assert (max(thinned), min(thinned)) == (91.5, -4.0)
    assert (steps[thinned.index(91.5)], steps[thinned.index(-4.0)]) == (417, 880)
    steps, thinned = data._thinned(Curve(steps=[1, 2, 3], values=[2.0, "NaN", "Infinity"]))
    assert (steps, thinned) == ([1, 2, 3], [2.0, None, None])
    assert data._thinned(Curve(steps=[], values=[])) == [[], []]


def test_a_fleet_of_nothing_and_one_without_losses_are_drawn() -> None:
    bare = replace(fleet(3), runs=[], common_causes=[], groups=[], grouped_by=[], severity=None, dataset="", notes=[])
    assert "Nothing that chance would not show as well" in page(bare)
    without = replace(fleet(3), runs=[replace(one, loss=None, vital={}) for one in fleet(3).runs])
    assert 'id="curves"' not in page(without)


def test_it_is_a_format_of_a_fleet() -> None:
    assert render(fleet(3), "html").startswith("<!doctype html>")
