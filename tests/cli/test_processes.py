"""What only a process of its own can show: modules loaded, closed pipes, encodings, signals, completion."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckaudit import __version__
from tests.forked import CLOSED, ckaudit
from tests.reports.sample import ill, invalid

ROOT = Path(__file__).parents[2]
STORAGE = {"fsspec", "s3fs", "obstore", "aiohttp", "botocore", "asyncio"}
HEAVY = {"numpy", "pyarrow", "jsonschema", "torch", "pydantic", "rich", *STORAGE}

# Runs the real main() with a report in the engine's place; MANY runs it for each of several command lines.
SCRIPT = """
import json, os, sys, types
if os.environ.get("SAMPLE"):
    def answer(*_, **__):
        import msgspec
        from ckaudit.contract.schema.report import Report
        with open(os.environ["SAMPLE"], "rb") as stream:
            return msgspec.json.decode(stream.read(), type=Report)
    for name, function in (("ckaudit.validate", "validate"), ("ckaudit.audit", "triage")):
        module = types.ModuleType(name)
        setattr(module, function, answer)
        sys.modules[name] = module
from ckaudit.__main__ import main
"""
ONE = SCRIPT + "main()"
MANY = (
    SCRIPT
    + """
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:], code = arguments, 0
    try:
        main()
    except SystemExit as left:
        code = left.code
    print(json.dumps([code, sorted({name.split(".")[0] for name in sys.modules})]), file=sys.stderr)
"""
)


def command(*arguments):
    return [sys.executable, "-c", ONE, *arguments]


def environment(**variables):
    kept = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING")
    }
    return {**kept, "PYTHONPATH": str(ROOT), **variables}


def start(*arguments, **variables):
    return subprocess.run(command(*arguments), capture_output=True, env=environment(**variables), check=False)


def loaded(*commands, **variables):
    """Run commands one after another in one process: what each printed, its exit code, and the modules loaded by then."""
    done = subprocess.run(
        [sys.executable, "-c", MANY, json.dumps(commands)], capture_output=True, env=environment(**variables), check=True
    )
    told = [json.loads(line) for line in done.stderr.decode().splitlines() if line.startswith("[")]
    assert len(told) == len(commands)
    return done.stdout.decode(), [code for code, _ in told], [set(modules) for _, modules in told]


@pytest.fixture
def sample(tmp_path):
    """A report that the engine will answer with; half surrogates have no place in a file."""
    from ckaudit.reports import render

    file = tmp_path / "sample.json"
    file.write_text(render(ill(), "json"), encoding="utf-8")
    return str(file)


HELPED = ("validate", "triage", "metrics", "explain", "diff", "gate", "coverage", "drill")


def test_help_and_version_load_nothing_heavy():
    out, codes, modules = loaded(["--version"], ["--help"], *([name, "-h"] for name in HELPED))
    assert codes == [0] * len(codes)
    assert all(each.isdisjoint(HEAVY | {"msgspec"}) for each in modules)
    assert "typer" not in modules[0]
    assert out.startswith(f"ckaudit {__version__}\n")


def test_only_what_measures_data_loads_its_libraries(tmp_path):
    (tmp_path / "a.txt").write_text("One short text.")
    libraries = {"phonenumbers", "py3langid", "rensa", "tokenizers", "pyarrow"}
    valid = str(ROOT / "fixtures/checkpoints/valid")
    modules = loaded(["data", "--help"], ["hash", str(tmp_path)], ["validate", valid], ["data", str(tmp_path)])[2]
    assert [each & libraries for each in modules] == [set()] * 3 + [{"py3langid", "rensa"}]


def test_version_among_other_words_is_the_same():
    assert start("--version", "triage").stdout.decode() == f"ckaudit {__version__}\n"


def test_no_report_loads_anything_heavy(sample):
    kinds = ("terminal", "json", "sarif", "junit", "github", "markdown")
    asked = [["validate", "run", "--format", kind, "--fail-on", "sev0", "--strict"] for kind in kinds]
    _, codes, modules = loaded(*asked, SAMPLE=sample)
    assert codes == [1] * len(kinds)
    assert all(each.isdisjoint(HEAVY) for each in modules)


def test_equal_input_gives_equal_bytes_whatever_the_hash_seed(sample):
    outputs = {start("triage", "run", "-f", "sarif", SAMPLE=sample, PYTHONHASHSEED=seed).stdout for seed in ("1", "2")}
    assert len(outputs) == 1


def test_a_reader_who_closes_the_pipe_is_no_error(sample):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        command("triage", "run", "-f", "json"), stdout=write, stderr=subprocess.PIPE, env=environment(SAMPLE=sample), check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


HEALTHY = str(ROOT / "fixtures" / "runs" / "healthy")
TALKERS = {
    "version": ["--version"],
    "help": ["--help"],
    "help of one": ["triage", "-h"],
    "validate": ["validate", HEALTHY],
    "triage": ["triage", HEALTHY],
    "metrics": ["metrics", HEALTHY],
    "parquet": ["metrics", HEALTHY, "-f", "parquet"],
    "explain": ["explain"],
    "coverage": ["coverage", HEALTHY],
    "diff": ["diff", HEALTHY, HEALTHY],
    "hash": ["hash", HEALTHY],
    "lab": ["lab", "list"],
}


@pytest.mark.parametrize("name", TALKERS)
def test_no_command_minds_a_closed_pipe(name):
    done = ckaudit(*TALKERS[name], out=CLOSED)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_that_nobody_hears_keeps_its_code():
    done = ckaudit("triage", "nowhere", err=CLOSED)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told(sample):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("triage", "run"), stdout=full, stderr=subprocess.PIPE, env=environment(SAMPLE=sample), check=False
        )
    assert (done.returncode, done.stderr) == (2, b"error: cannot write to standard output: No space left on device\n")


def test_an_ascii_terminal_gets_ascii_and_json_stays_utf8(tmp_path):
    report = {**json.loads(json_of(ill())), "subject": "größe"}
    file = tmp_path / "sample.json"
    file.write_text(json.dumps(report))
    variables = {"SAMPLE": str(file), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert start("triage", "run", **variables).stdout.isascii()
    assert json.loads(start("triage", "run", "-f", "json", **variables).stdout)["subject"] == "größe"


def json_of(report):
    from ckaudit.reports import render

    return render(report, "json")


def test_a_shell_that_asks_for_completion_is_answered_by_a_new_process():
    words = {"COMP_WORDS": "ckaudit triage --format s", "COMP_CWORD": "3"}
    assert start(_CKAUDIT_COMPLETE="complete_bash", **words).stdout == b"sarif\n"


def test_colour_needs_a_terminal_or_force(sample):
    assert b"\x1b" not in start("triage", "run", SAMPLE=sample).stdout
    assert b"\x1b[1;31m" in start("triage", "run", SAMPLE=sample, FORCE_COLOR="1").stdout
    assert b"\x1b" not in start("triage", "run", SAMPLE=sample, FORCE_COLOR="1", NO_COLOR="1").stdout


def test_hostile_names_are_shown_on_a_real_pipe(tmp_path):
    file = tmp_path / "sample.json"
    file.write_text(json_of(invalid()), encoding="utf-8")
    done = start("validate", "run", SAMPLE=str(file))
    assert done.returncode == 1
    assert rb"w\x1b[31m]0;x\x07[red]" in done.stdout


def test_completion_scripts_can_be_had():
    for shell in ("bash", "zsh", "fish"):
        done = ckaudit(_CKAUDIT_COMPLETE=f"source_{shell}")
        assert done.returncode == 0
        assert "ckaudit" in done.stdout


def test_completion_offers_commands_options_and_formats():
    def complete(words):
        variables = {"_CKAUDIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return ckaudit(**variables).stdout.split()

    commands = [
        "validate",
        "triage",
        "watch",
        "fleet",
        "metrics",
        "explain",
        "report",
        "diff",
        "gate",
        "coverage",
        "convert",
        "import",
        "export",
        "data",
        "hash",
        "resume-check",
        "drill",
        "push",
        "mcp",
        "docs",
        "probe",
        "lab",
    ]
    assert complete("ckaudit ") == commands
    assert complete("ckaudit probe ") == ["toxicity", "memorization", "init", "score"]
    assert complete("ckaudit lab ") == ["list", "run", "record", "score", "wild", "curriculum"]
    assert complete("ckaudit lab run lr_too_h") == ["lr_too_high"]
    assert "--fail-on" in complete("ckaudit triage --f")
    assert complete("ckaudit triage --format s") == ["sarif"]
    assert complete("ckaudit explain max_") == ["max_attention", "max_attn_logit"]
    assert complete("ckaudit explain M19 --format m") == ["markdown"]
    assert complete("ckaudit drill --faults matrix_zeroed,half") == ["matrix_zeroed,half_zeroed"]
    assert complete("ckaudit triage --fail-on sev") == ["sev0", "sev1", "sev2"]
