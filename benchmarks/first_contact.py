"""Plays a new user's first five minutes: a fresh clone, a fresh environment, and what the README and docs/ say to type.

    python benchmarks/first_contact.py [--python PYTHON] [--folder FOLDER] [--write]

Each contact is at most two commands, as a page has them except for the user's own names, and is tried once with something healthy
and once with something ill. The script checks that the page has the command, that the first try works, and that the verdict is
right; the exit code is 1 if one of these fails. The Python that runs this script does the trainings and needs torch and
transformers. The fresh environment does the audits, or the one that `--python` names, to save the install.
"""

import argparse
import contextlib
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

from pairs import machine, write_table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "first-contact.md"
README, COMMANDS, IMPORTERS, GATE = "README.md", "docs/commands.md", "docs/importers.md", "docs/gate.md"

TRAINER = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0))
tokens = (torch.randint(0, 64, (512, 1)) + torch.arange(16) * torch.randint(1, 4, (512, 1))) % 64
rows = [{"input_ids": row, "labels": row} for row in tokens]
arguments = TrainingArguments(
    "outputs/", max_steps=500, per_device_train_batch_size=8, learning_rate=float(sys.argv[1]), warmup_steps=20, logging_steps=5,
    save_steps=500, eval_strategy="steps", eval_steps=100, use_cpu=True, report_to=[], disable_tqdm=True)
Trainer(model, arguments, train_dataset=rows[:448], eval_dataset=rows[448:]).train()
"""


class PageCommand(NamedTuple):
    """A command, and the page that has it.

    Attributes:
        line: What the user types.
        page: The page that has it.
        stands: The page's version of the line, if the user's names differ.
    """

    line: str
    page: str
    stands: str | None = None


class Contact(NamedTuple):
    """One thing that a new user tries.

    Attributes:
        name: In words.
        prepare: Puts what is audited into a folder, given the clone and the folder.
        commands: At most two.
        is_ill: Whether the verdict has to be a finding of sev2 or worse, or, for a gate, that the run is worse.
        made: A file that the last command writes, which is read.
    """

    name: str
    prepare: Callable[[Path, Path], None]
    commands: tuple[PageCommand, ...]
    is_ill: bool = False
    made: str | None = None


class CommandResult(NamedTuple):
    """The result of a command."""

    code: int
    text: str
    seconds: float


def train(_clone: Path, user: Path, *, rate: float) -> None:
    """Train a tiny GPT-2 with the Trainer, as its user would."""
    by_python(["-c", TRAINER, str(rate)], user)


def write_csv(_clone: Path, user: Path, *, climbs: bool) -> None:
    """Fit a line to points, and log one epoch at a time as a user's own script does."""
    chance = random.Random(0)
    points = [(each, 0.7 * each - 0.2 + chance.gauss(0, 0.3)) for each in (chance.uniform(-1, 1) for _ in range(400))]
    slope, offset, lines = 3.0, 2.0, ["Epoch,training nll,validation nll"]
    for epoch in range(1, 41):
        rate = 0.05 if epoch < 25 or not climbs else 1.2
        losses = []
        for first in range(0, 320, 32):
            errors = [(x, slope * x + offset - y) for x, y in points[first : first + 32]]
            slope -= rate * sum(2 * error * x for x, error in errors) / 32
            offset -= rate * sum(2 * error for _, error in errors) / 32
            losses.append(sum(error * error for _, error in errors) / 32)
        held_out = sum((slope * x + offset - y) ** 2 for x, y in points[320:]) / 80
        lines.append(f"{epoch},{sum(losses) / len(losses):.6g},{held_out:.6g}")
    (user / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def copy(clone: Path, user: Path, *, pattern: str, to: str = ".") -> None:
    """Copy a log out of the fixtures of the clone."""
    (user / to).mkdir(exist_ok=True)
    for path in clone.glob(f"fixtures/{pattern}"):
        shutil.copy(path, user / to)


def train_canaries(clone: Path, user: Path, *, times: float) -> None:
    """Train three good runs and a canary with `times` the learning rate, by the example of the page."""
    shutil.copytree(clone / "examples" / "gate", user / "base")
    shutil.copytree(clone / "examples" / "gate", user / "head")
    recipe = user / "head" / "recipe.toml"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("3e-3", str(3e-3 * times)), encoding="utf-8")
    by_python(["base/canary.py", "good", "--seeds", "1", "2", "3"], user)
    by_python(["head/canary.py", "canary", "--seeds", "1"], user)


def by_python(arguments: list[str], folder: Path) -> None:
    """Run a training with the Python that runs this script."""
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, *arguments], cwd=folder, env=surroundings, check=True, capture_output=True)


STATE = (PageCommand("ckaudit triage outputs/checkpoint-500/trainer_state.json", README),)
CSV = (PageCommand('ckaudit triage log.csv --map loss="training nll"', README, 'ckaudit triage log.csv --map loss="my nll"'),)
EVENTS = (PageCommand("ckaudit triage project/", IMPORTERS),)
REPORT = (
    PageCommand(
        'ckaudit report log.csv --map loss="training nll" -o report.svg',
        README,
        'ckaudit report log.csv --map loss="my nll" -o report.svg',
    ),
)
PAGES = (PageCommand('ckaudit report log.csv --map loss="training nll" -o report.html', README, "-o report.html"),)
EXTRA = PageCommand("pip install --quiet '../ckaudit[report]'", COMMANDS, "pip install '.[report]'")
AGAINST = "--against good/1 --against good/2 --against good/3"
CANARY = (PageCommand(f"ckaudit gate canary/1 {AGAINST}", GATE, f"ckaudit gate canary {AGAINST}"),)

CONTACTS = (
    Contact("an own run of the Hugging Face Trainer", partial(train, rate=3e-3), STATE),
    Contact("the same, learning rate 3", partial(train, rate=3.0), STATE, is_ill=True),
    Contact("a CSV with columns `Epoch` and `training nll`", partial(write_csv, climbs=False), CSV),
    Contact("the same, a rate that is too high from epoch 25 on", partial(write_csv, climbs=True), CSV, is_ill=True),
    Contact(
        "a TensorBoard event file, of a clean speech model",
        partial(copy, pattern="real/algoperf/deepspeech_baseline_healthy/events*", to="project"),
        EVENTS,
    ),
    Contact(
        "one of a run that ends in infinities",
        partial(copy, pattern="real/algoperf/criteo_genadam_inf_step73/events*", to="project"),
        EVENTS,
        is_ill=True,
    ),
    Contact(
        "a `.wandb` file",
        partial(copy, pattern="trackers/wandb/*16-idfirst/*.wandb"),
        (PageCommand("ckaudit triage run-idfirst.wandb", README, "ckaudit triage "),),
    ),
    Contact(
        "one whose loss is NaN in places",
        partial(copy, pattern="trackers/wandb/*-idsecond/*.wandb"),
        (PageCommand("ckaudit triage run-idsecond.wandb", README, "ckaudit triage "),),
        is_ill=True,
    ),
    Contact("a report of the CSV, opened", partial(write_csv, climbs=False), REPORT, made="report.svg"),
    Contact("the same with a tab for each question", partial(write_csv, climbs=False), (EXTRA, *PAGES), made="report.html"),
    Contact("a gate in CI, nothing changed", partial(train_canaries, times=1), CANARY),
    Contact("the same, 300 times the learning rate", partial(train_canaries, times=300), CANARY, is_ill=True),
)


class Page(HTMLParser):
    """The words of a page, and whether it fetches anything."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record what the tag would fetch."""
        named = dict(attrs)
        reference = named.get("src") or (named.get("href") if tag == "link" else None)
        if reference and not reference.startswith("data:"):
            self.fetched.append(reference)

    def handle_data(self, data: str) -> None:
        """Store the text."""
        self.words.append(data)


def wrong_with_page(path: Path, verdict: str) -> str | None:
    """Return what is wrong with a written report, which has to contain the verdict and fetch nothing."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    if page.fetched:
        return f"it fetches {page.fetched[0]}"
    return None if verdict in " ".join("".join(page.words).split()) else "it does not say the verdict"


class Bench:
    """The clone, the environment of the audits, and a folder for each contact."""

    def __init__(self, folder: Path, python: Path | None) -> None:
        self.folder = folder
        self.clone = folder / "ckaudit"
        self.installed: list[tuple[str, CommandResult]] = []
        self.is_fresh = python is None
        self._python = python or self.clone / ".venv" / "bin" / "python"

    def install(self) -> None:
        """Clone, and install by the command of the README unless another environment is named."""
        command = f"git clone --quiet {shlex.quote(ROOT.as_uri())} {shlex.quote(str(self.clone))}"
        self.installed.append(("git clone", self.type(command, self.folder)))
        if self.is_fresh:
            command = "python3 -m venv .venv && .venv/bin/pip install --quiet ."
            self.installed.append((command, self.type(command, self.clone)))

    def type(self, line: str, folder: Path) -> CommandResult:
        """Run a command line in a folder, with the environment's programs first."""
        path = f"{self._python.parent}{os.pathsep}{os.environ['PATH']}"
        surroundings = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        begun = time.perf_counter()
        done = subprocess.run(
            line, shell=True, cwd=folder, env=surroundings | {"PATH": path}, capture_output=True, text=True, check=False
        )
        return CommandResult(done.returncode, f"{done.stdout}\n{done.stderr}".strip(), time.perf_counter() - begun)

    def report(self, line: str, folder: Path) -> dict[str, Any]:
        """Return the output of a triage or gate as data."""
        line = line.replace("ckaudit report", "ckaudit triage").partition(" -o ")[0]
        answer = self.type(f"{line} --format json 2> /dev/null", folder)
        try:
            whole: dict[str, Any] = json.loads(answer.text)
        except ValueError:
            return {}
        return whole

    def is_on_page(self, typed: PageCommand) -> bool:
        """Tell whether a page of the clone has the command."""
        return (typed.stands or typed.line) in (self.clone / typed.page).read_text(encoding="utf-8")


def tried(bench: Bench, contact: Contact, folder: Path) -> tuple[str, bool]:
    """Try a contact, and return its row and whether everything was right."""
    contact.prepare(bench.clone, folder)
    wrong = [f"{typed.page} does not have it" for typed in contact.commands if not bench.is_on_page(typed)]
    answers = [bench.type(typed.line, folder) for typed in contact.commands]
    whole = bench.report(contact.commands[-1].line, folder)
    wrong += [*_wrong(contact, answers[-1], whole, folder)]
    lines = "<br>".join(f"`{typed.line}`" for typed in contact.commands)
    seconds = sum(each.seconds for each in answers)
    row = f"| {contact.name} | {lines} | {seconds:.1f} | {_verdict(answers[-1], whole)} | {'; '.join(wrong) or 'right'} |"
    print(row, flush=True)
    return row, not wrong


def _wrong(contact: Contact, answer: CommandResult, whole: dict[str, Any], folder: Path) -> Iterator[str]:
    """Yield each mistake in a contact's result."""
    if not whole:
        yield f"no verdict: {_first(answer.text)}"
    elif contact.made:
        if not (folder / contact.made).is_file():
            yield f"no {contact.made}: {_first(answer.text)}"
        elif problem := wrong_with_page(folder / contact.made, whole["verdict"]):
            yield problem
    elif "ckaudit gate" in contact.commands[-1].line:
        if answer.code != int(contact.is_ill):
            yield f"exit code {answer.code}"
    elif (whole.get("severity") in {"sev0", "sev1", "sev2"}) is not contact.is_ill:
        yield "a false alarm" if not contact.is_ill else "not found"
    elif answer.code and not contact.is_ill:
        yield f"exit code {answer.code}"


def _verdict(answer: CommandResult, whole: dict[str, Any]) -> str:
    """Return severity or outcome, exit code and the first sentence, as a table cell."""
    outcome = whole.get("gate", {}).get("outcome") or whole.get("severity") or "no finding"
    sentence = str(whole.get("verdict") or _first(answer.text)).replace("|", "\\|")
    return f"{outcome}, exit code {answer.code}: {sentence}"


def _first(text: str) -> str:
    return next(iter(text.splitlines()), "nothing was said")


def table(bench: Bench) -> tuple[str, bool]:
    """Try every contact, and return the table and whether everything was right."""
    rows, right = [], True
    contacts = [each for each in CONTACTS if bench.is_fresh or EXTRA not in each.commands]  # a user's own one is not changed
    for number, contact in enumerate(contacts, 1):
        folder = bench.folder / str(number)
        folder.mkdir()
        row, is_right = tried(bench, contact, folder)
        rows.append(row)
        right &= is_right
    installed = "; ".join(f"`{line}` {answer.seconds:.0f} s" for line, answer in bench.installed)
    head = "| what | typed | s | verdict | |"
    return "\n".join([f"{machine()}. {installed}.", "", head, "|---" * 5 + "|", *rows]), right


def main() -> int:
    """Play the five minutes, print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", type=Path, help="a Python with ckaudit installed, in place of a fresh environment")
    parser.add_argument("--folder", type=Path, help="an empty folder to work in; default: a temporary one")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.relative_to(ROOT)}")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="first-contact-")))
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder.absolute(), given.python and given.python.absolute())
        bench.install()
        text, right = table(bench)
    print(text)
    if given.write:
        write_table("first_contact", text, PAGE)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
