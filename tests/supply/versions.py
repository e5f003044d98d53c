"""Installs ckaudit with the oldest and the newest libraries on each Python and asks it: `python -m tests.supply.versions`.

Needs uv, and finds the Pythons that are on this machine. Prints a table in Markdown: for each environment whether the
commands end as they must, which libraries there were, a digest of their answers, which is to be the same everywhere,
and with `--tests` what those tests say that train nothing.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.supply.release import ROOT, build, uv

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
DEPENDENCIES = {"lowest": "lowest-direct", "newest": "highest"}
LIBRARIES = ("jsonschema", "msgspec", "numpy", "protobuf", "pyarrow", "rich", "typer", "zstandard")
RUNS = "fixtures/runs"
# The arguments, the exit code, and whether the answer is the same everywhere.
COMMANDS: tuple[tuple[tuple[str, ...], int, bool], ...] = (
    (("--version",), 0, True),
    (("--help",), 0, False),
    (("validate", f"{RUNS}/healthy", "--format", "json"), 0, True),
    (("triage", f"{RUNS}/healthy", "--format", "json"), 0, True),
    (("triage", f"{RUNS}/nan_batch", "--format", "json"), 1, True),
    (("triage", f"{RUNS}/lr_too_high", "--format", "json"), 1, True),
    (("diff", f"{RUNS}/healthy", f"{RUNS}/lr_too_high", "--format", "json"), 1, True),
    (("metrics", f"{RUNS}/healthy"), 0, True),
    (("explain", "LOSS001"), 0, True),
    (("report", f"{RUNS}/healthy", "-o", "report.html"), 2, False),  # it says which extra it needs
)
WITH_REPORT = (("report", f"{RUNS}/healthy", "-o", "report.html"), 0, False)
TESTS = "alarm api audit cli contract data diff explain importers metrics plugins policy questions rules run validate watch"
CANNOT_BE_IMPORTED = ("tests/alarm/test_watch.py",)  # without torch


@dataclass
class Environment:
    """One environment: a Python, a choice of libraries, and what came of it.

    Attributes:
        python: Version asked for.
        dependencies: Which libraries: lowest or newest.
        artifact: What was installed: wheel or sdist.
        libraries: The versions that were installed.
        failed: What did not end as it must.
        answers: Digest of the answers.
        tests: What the tests said last.
    """

    python: str
    dependencies: str
    artifact: str
    libraries: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    answers: str = "-"
    tests: str = "not run"

    def row(self) -> str:
        """Return it as a row of the table."""
        libraries = " ".join(f"{name} {version}" for name, version in self.libraries.items())
        wrong = "; ".join(self.failed).replace("|", "\\|") or "as they must"
        return (
            f"| {self.python} | {self.dependencies} | {self.artifact} | {libraries} | {wrong} | {self.answers} | {self.tests} |"
        )


def install(environment: Environment, folder: Path, artifact: Path, *extras: str) -> None:
    """Make the environment: libraries first, as chosen and as wheels alone, then the artifact without any of its own."""
    chosen = ["--resolution", DEPENDENCIES[environment.dependencies], "--no-build"]
    wanted = [option for extra in extras for option in ("--extra", extra)]
    uv("pip", "install", "--quiet", "--python", folder, *chosen, "-r", "pyproject.toml", *wanted)
    uv("pip", "install", "--quiet", "--python", folder, "--no-deps", "--reinstall-package", "ckaudit", artifact)
    listed = json.loads(uv("pip", "list", "--python", folder, "--format", "json"))
    versions = {each["name"].lower(): each["version"] for each in listed}
    environment.libraries = {name: versions[name] for name in LIBRARIES}


def ask(environment: Environment, folder: Path, commands: tuple[tuple[tuple[str, ...], int, bool], ...]) -> None:
    """Run commands, and note those that do not end as they must."""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "fixtures").symlink_to(ROOT / "fixtures")
        for arguments, wanted, is_same in commands:
            command = [folder / "bin" / "ckaudit", *arguments]
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=300)
            if done.returncode != wanted or "bug in ckaudit" in done.stderr or "Traceback" in done.stderr:
                last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
                environment.failed.append(f"`{' '.join(arguments)}` ended with {done.returncode}: {last}")
            digest.update(done.stdout.encode() if is_same else b"")
    if commands is COMMANDS:
        environment.answers = f"`{digest.hexdigest()[:8]}`"


def run_tests(environment: Environment, folder: Path) -> None:
    """Run the tests that train nothing, and note what pytest says last."""
    ignored = [f"--ignore={path}" for path in CANNOT_BE_IMPORTED]
    folders = [f"tests/{name}" for name in TESTS.split()]
    command = [folder / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "auto", "--dist", "loadfile"]
    if environment.dependencies == "lowest":  # old libraries call what newer ones beside them give up
        command += ["-W", "ignore::DeprecationWarning"]
    threads = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *ignored, *folders], cwd=ROOT, env=threads, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stdout[-6000:])
    last = (done.stdout.strip().splitlines() or ["nothing said"])[-1]
    environment.tests = re.sub(r" in [\d.]+s.*", "", last).strip("= ")
    if done.returncode:
        environment.failed.append("tests")


def try_one(environment: Environment, artifact: Path, *, tests: bool) -> None:
    """Make one environment and try everything in it; what cannot be installed is noted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "environment"
        try:
            uv("venv", "--quiet", "--seed", "--python", environment.python, "--no-python-downloads", folder)  # tests ask for pip
            install(environment, folder, artifact)
            ask(environment, folder, COMMANDS)
            install(environment, folder, artifact, "report")
            ask(environment, folder, (WITH_REPORT,))
            if tests:
                install(environment, folder, artifact, "test")
                run_tests(environment, folder)
        except SystemExit as error:
            environment.failed.append(" ".join(str(error).split()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.supply.versions", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", nargs="+", default=PYTHONS, help="versions, or paths of interpreters")
    parser.add_argument("--dependencies", nargs="+", default=list(DEPENDENCIES), choices=DEPENDENCIES)
    parser.add_argument("--tests", action="store_true", help="run the tests that train nothing as well")
    options = parser.parse_args()
    sys.stdout.write("| Python | libraries | from | versions | commands | answers | tests |\n|---|---|---|---|---|---|---|\n")
    tried = []
    with tempfile.TemporaryDirectory() as folder:
        sdist, wheel = build(Path(folder))[::-1]
        for python in options.python:
            for dependencies in options.dependencies:
                for name, artifact in [("wheel", wheel), *([("sdist", sdist)] if dependencies == "newest" else [])]:
                    tried.append(environment := Environment(python, dependencies, name))
                    try_one(environment, artifact, tests=options.tests and name == "wheel")
                    sys.stdout.write(environment.row() + "\n")
                    sys.stdout.flush()
    answers = {each.answers for each in tried if each.answers != "-"}
    if len(answers) > 1:
        sys.exit(f"answers differ: {', '.join(sorted(answers))}")
    sys.exit(any(each.failed for each in tried))


if __name__ == "__main__":
    main()
