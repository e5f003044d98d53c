"""Which tests touch which file of the package, for `mutants.py`."""

import re
from pathlib import Path

TURNING_POINTS = {
    "rules": "tests/test_turning_points.py::test_a_rule_turns_where_it_did",
    "causes": "tests/test_turning_points.py::test_a_cause_turns_where_it_did",
}
CASES = {
    "rules": ("tests/test_rule_cases.py::test_rule_gives_what_its_cases_expect", TURNING_POINTS["rules"]),
    "causes": ("tests/test_cause_cases.py::test_cause_ranks_as_its_cases_expect", TURNING_POINTS["causes"]),
    "metrics": ("tests/metrics/test_kept_values.py::test_a_metric_gives_what_it_gave",),
}
KEPT = {"rules": "verdicts/rules", "causes": "verdicts/causes", "metrics": "verdicts/metrics"}
WALKS = {
    "metrics": (
        *("tests/metrics/test_kept_values.py", "tests/metrics/test_every_metric.py", "tests/metrics/test_recorded_runs.py"),
        *("tests/test_rule_cases.py", TURNING_POINTS["rules"], "tests/test_runs.py"),
    ),
    "rules": (
        "tests/test_rule_cases.py",
        TURNING_POINTS["rules"],
        "tests/rules",
        "tests/test_runs.py",
        "tests/test_cause_cases.py",
    ),
    "causes": (
        *("tests/test_cause_measures.py", TURNING_POINTS["causes"], "tests/test_cause_cases.py", "tests/causes"),
        "tests/test_runs.py",
    ),
    "contract": (
        *("tests/contract/test_fixtures.py", "tests/contract/test_violation_edges.py", "tests/validate/test_lines.py"),
        *("tests/contract", "tests/validate"),
    ),
    "recorder": tuple(
        f"tests/recorder/test_{name}.py" for name in ("recorder", "formulas", "sections", "writer", "events", "resume")
    ),
}
MOST = 30  # most test files of each group: those of the same room, and those of others


class Tests:
    """Which tests touch which file of the package.

    Args:
        root: Folder of the package and its tests.
    """

    def __init__(self, root: Path) -> None:
        def texts(folder: str) -> dict[str, str]:
            return {
                str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in sorted((root / folder).rglob("*.py"))
            }

        self.package, self.tests = texts("ckaudit"), texts("tests")
        self.cases = {room: {path.stem for path in (root / "tests" / KEPT[room]).glob("*.txt")} for room in CASES}

    def importing(self, path: str, texts: dict[str, str]) -> list[str]:
        """Return the files that import a module by its name."""
        package, _, stem = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".").rpartition(".")
        names = re.compile(rf"\b{re.escape(package)}(\.| import (?:\(?[\w\s,]*\b)?){stem}\b")
        return [each for each, text in texts.items() if names.search(text)]

    def named(self, path: str) -> list[str]:
        """Return the tests named after a file of the package."""
        room, stem = path.split("/")[1], Path(path).stem
        files = [each for each in self.tests if each.startswith(f"tests/{room}/") and Path(each).stem == f"test_{stem}"]
        return files + ([f"{test}[{stem}]" for test in CASES[room]] if stem in self.cases.get(room, ()) else [])

    def stages(self, path: str) -> list[list[str]]:
        """Return the tests that touch a file, nearest first."""
        room = path.split("/")[1]
        around = self.importing(path, self.package)
        users = [test for each in (path, *around) for test in (*self.named(each), *self.importing(each, self.tests))]
        files = [each for each in dict.fromkeys(users) if Path(each).stem.startswith("test_")]
        near = [each for each in files if each.startswith((f"tests/{room}/", "tests/test_"))]
        far = [each for each in files if each not in near]
        walks = WALKS[room]
        if room == "metrics":  # one test of all metrics costs less than the tests of a few metrics
            near = [walks[0], *near]
        return [[path, *self.named(path)], *([each] for each in (*near[:MOST], *walks, *far[:MOST]))]
