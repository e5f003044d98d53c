"""Workflows, ours and those we hand out, run code of others at a commit alone, and may do no more than they need."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
GIVEN = [ROOT / "action.yml", *sorted((ROOT / "examples").rglob("workflow*.yml"))]
USES = re.compile(r"^\s*(?:- )?uses:\s*(?P<what>\S+)(?P<rest>.*)$", re.MULTILINE)
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


def unpinned(text):
    """Return the actions that are not at a full commit with its version beside it; a path is of the same commit."""
    return [
        each["what"]
        for each in USES.finditer(text)
        if not each["what"].startswith("./")
        and not (PINNED.fullmatch(each["what"]) and re.fullmatch(r" # v\d+\.\d+\.\d+", each["rest"]))
    ]


@pytest.mark.parametrize("path", [*WORKFLOWS, *GIVEN], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_action_is_at_a_commit(path):
    text = path.read_text(encoding="utf-8")
    assert len(USES.findall(text)) == len(re.findall(r"\buses\b", text)) > 0
    assert unpinned(text) == []


def test_one_version_of_an_action_is_one_commit():
    texts = [path.read_text(encoding="utf-8") for path in [*WORKFLOWS, *GIVEN]]
    named = {(each["what"].partition("@")[0], each["rest"], each["what"]) for text in texts for each in USES.finditer(text)}
    assert len({name for name, _, _ in named}) == len(named)


@pytest.mark.parametrize(
    "line",
    [
        "- uses: actions/checkout@v7",
        "uses: actions/checkout@main",
        "- uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1",
        "- uses: actions/checkout@3d3c42e # v7.0.1",
        "- uses: docker://alpine:3",
        "- uses: actions/checkout",
    ],
)
def test_one_that_is_not_is_seen(line):
    assert unpinned(f"steps:\n  {line}\n")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_job_has_the_permissions_that_it_names_and_takes_no_text_of_others_into_a_script(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        assert set(job["permissions"]) <= {"contents", "id-token", "attestations"}
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), "hand it over in env"
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_updates_are_proposed_for_every_place_with_actions():
    (actions,) = (
        each
        for each in yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
        if each["package-ecosystem"] == "github-actions"
    )
    there = {"/" if path.parent == ROOT else f"/{path.parent.relative_to(ROOT)}" for path in GIVEN}
    assert set(actions["directories"]) == there | {"/"}
