"""Commands that pages show are run in a folder with what they speak of; those that train or follow a run are parsed."""

import contextlib
import re
import shlex
import shutil
import tomllib
from glob import glob
from pathlib import Path

import pytest
import torch
import typer
from typer.main import get_command

from ckaudit.cli.app import build
from ckaudit.cli.run import run

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKED = re.compile(r"<!-- (?:file|change|run|screen)\b[^\n]*-->\n```.*?^```$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(?:sh)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"^    (?=\S)(.*)$", re.MULTILINE)
# Commands that train, follow a run or serve, and those that need a run with a resume or with ranks: they are parsed.
PARSED = ("watch", "drill", "mcp", "docs", "lab run", "lab record", "lab score", "lab curriculum", "lab wild")
ELSEWHERE = ("README.md", "object-storage.md")  # which have tests of their own
WITHOUT_A_RUN = ("diff runs/nano --resume", "diff runs/nano --replicas")
INLINE = re.compile(r"(?<!`)`ckaudit ([a-z][^`\n]* [^`\n]+)`(?!`)")


def commands(text):
    """Return the commands that stand in the blocks of a page, but for those that docs/executed.py or docs/screens.py runs."""
    rest = MARKED.sub("", text)
    shown = "\n".join([*BLOCK.findall(rest), *INDENTED.findall(rest)])
    lines = [re.split(r"\s{3,}", line)[0] for line in shown.splitlines()]
    parts = [part.strip() for line in lines for part in re.split(r"&&|\|\||\||>>|\s&\s|\s#", line)]
    return [
        part.removeprefix(".venv/bin/").removeprefix("ckaudit ") for part in parts if re.match(r"(\.venv/bin/)?ckaudit ", part)
    ]


SHOWN = {path.name: found for path in PAGES if (found := commands(path.read_text(encoding="utf-8")))}
RUN_HERE = {
    name: todo
    for name, found in SHOWN.items()
    if name not in ELSEWHERE and (todo := [line for line in found if not line.startswith((*PARSED, *WITHOUT_A_RUN))])
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return what makes the folder of somebody who has all that the commands of a page speak of."""
    monkeypatch.chdir(tmp_path)

    def make(lines):
        for line in lines:
            for name in re.findall(r"(?<!-o )\b(?:runs/\w+|good/\d|canary$|canary(?= --))", line):
                shutil.copytree(FIXTURES / "runs" / "healthy", name, dirs_exist_ok=True)
        for name in ("sweep/1", "sweep/2"):
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).symlink_to(FIXTURES / "runs" / "healthy")
        Path("mlruns").symlink_to(FIXTURES / "trackers" / "mlruns")
        for name in ("deepspeech_baseline_healthy", "criteo_genadam_inf_step73"):
            (events,) = (FIXTURES / "real" / "algoperf" / name).glob("events*")
            Path("tb-logs", name).mkdir(parents=True)
            shutil.copy(events, Path("tb-logs", name))
        Path("project", "deep").mkdir(parents=True)
        for place in (".", "project/deep"):
            shutil.copy(FIXTURES / "real/hf_trainer/mistral_lora_4ep/checkpoint-500/trainer_state.json", place)
        rows = [f"{step},{3 - 0.02 * step}" for step in range(1, 101)]
        Path("log.csv").write_text("\n".join(["iteration,train/nll", *rows]), encoding="utf-8")
        Path("checkpoints").mkdir()
        torch.save({"step": 5, "model": {"weight": torch.ones(3, 2)}}, "checkpoints/step_5.pt")
        return tmp_path

    return make


def split_command(line):
    """Return the words of a command, its patterns filled in as a shell does, which leaves those in quotes alone."""
    words = zip(shlex.split(line), shlex.split(line, posix=False), strict=True)
    filled = [(word, sorted(glob(word)) if "*" in word and word == written else []) for word, written in words]  # noqa: PTH207
    return [found for word, matches in filled for found in matches or [word]]


@pytest.mark.parametrize("name", RUN_HERE)
def test_commands_of_a_page_do_what_they_say(folder, name, capfd):
    folder(RUN_HERE[name])
    if name == "ci.md":
        run(["triage", "runs/canary", "--baseline", "ckaudit-baseline.json", "--update-baseline"])
    for line in RUN_HERE[name]:
        assert run(split_command(line)) in (0, 1), (line, capfd.readouterr().err)


def parsed(line):
    """Parse a command as the program does, without doing it; a wrong word raises."""
    command, words = get_command(build()), shlex.split(line)
    while hasattr(command, "commands"):
        name, words = words[0], words[1:]
        command = command.commands[name]
    with contextlib.suppress(typer.Exit):  # --help and --version say something and leave
        command.make_context(command.name, words)


def mistake(line):
    """Return what is wrong with a command within a sentence, which may leave out the run or the value of an option."""
    try:
        parsed(line)
    except Exception as error:  # noqa: BLE001  Typer's own classes have no public names
        return None if type(error).__name__ in ("MissingParameter", "BadParameter", "BadOptionUsage") else error
    return None


def test_commands_that_are_not_run_have_their_options_and_arguments():
    left = [line for found in SHOWN.values() for line in found if line.startswith((*PARSED, *WITHOUT_A_RUN))]
    assert len(left) > 15
    for line in left:
        parsed(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_within_a_sentence_have_options_that_there_are(page):
    for line in INLINE.findall(page.read_text(encoding="utf-8")):
        assert mistake(line.partition(" &&")[0]) is None, line


def test_a_wrong_name_within_a_sentence_is_seen():
    assert "--basline" in str(mistake("triage run/ --basline FILE"))
    assert mistake("triag run/") is not None
    assert mistake("triage --step") is None


def test_extras_are_installed_from_the_clone_and_exist():
    """The README alone says how it is after a release; the files for CI, which stand in other repositories, are not looked at."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    helped = [*(ROOT / "ckaudit" / "cli").rglob("*.py"), *(ROOT / "ckaudit" / "metrics" / "catalogue").glob("*.toml")]
    found = [
        (path.name, *installed)
        for path in [*PAGES, *helped]
        for installed in re.findall(r"pip install (?:-\S+ )*'([^\s\[']+)\[([^\]]+)\]", path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 15
    assert {extra for _, _, names in found for extra in names.split(",")} <= extras.keys()
    assert {(page, source) for page, source, _ in found if source not in {".", "../ckaudit"}} == {("README.md", "ckaudit")}
