"""Pages that a reader types along with are run as they stand there; their screens are what is printed."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import ckaudit
from tests import forked

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("tutorial.md", "trainers.md", "jax.md", "foreign-log.md", "cluster.md", "fleet.md")
ENDS = re.compile(
    r"^(?:Also noted|Findings|What to do now|Is the loss going down\?|Questions|\d+ of \d+ checks|\s+likely:)", re.MULTILINE
)


@pytest.fixture(scope="module")
def executed(script):
    return script("executed")


@pytest.fixture(scope="module")
def loaded_reader(executed):
    """A reader whose programs have loaded their libraries; a program of a shell, and what it starts, is started as it stands."""

    class LoadedReader(executed.Reader):
        def call(self, command, words):
            if command == "ckaudit":
                return forked.ckaudit(*words, cwd=self.folder, **executed.SCREEN)
            if command == "python":
                done = forked.training(words[0], *words[1:], cwd=self.folder, **executed.SCREEN)
                for log in self.folder.glob("*/scalars.jsonl"):
                    without_clock(log)
                return done
            return super().call(command, words)

    return LoadedReader


def without_clock(log):
    """Leave out how a step's time was divided: on a machine with much else to do it can look like a loader that stalls."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    kept = [{key: value for key, value in line.items() if not key.endswith("_time_frac")} for line in lines]
    log.write_text("".join(f"{json.dumps(line)}\n" for line in kept), encoding="utf-8")


def words_without_numbers(screen):
    """Return the words of a screen down to its details; numbers are left to the machine that trains."""
    words = re.sub(r"\d[\d.,e+-]*", "#", ENDS.split(screen)[0])
    return re.sub(r"[─▁-█]+", "", words).split()


def screens(executed, text):
    return [found[5] for found in executed.BLOCK.finditer(text) if found[2] == "screen"]


def test_every_page_that_is_run_is_tested(executed):
    assert executed.DOCUMENTS == PAGES
    marked = {path.name for path in DOCS.glob("*.md") if executed.BLOCK.search(path.read_text(encoding="utf-8"))}
    assert marked == {*PAGES}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_prints_what_it_shows(executed, loaded_reader, name):
    for library in executed.NEEDS.get(name, ()):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{name} needs {library}: pip install '.[docs]'")
    text = (DOCS / name).read_text(encoding="utf-8")
    written, drawn = executed.renewed(text, loaded_reader)
    shown, printed = screens(executed, text), screens(executed, written)
    assert [words_without_numbers(screen) for screen in printed] == [words_without_numbers(screen) for screen in shown], (
        f"run python docs/executed.py {name}"
    )
    assert all(len(words_without_numbers(screen)) > 5 for screen in shown)
    assert not re.search("Traceback", written)
    assert all(picture.startswith("<!-- ckaudit report -->") for picture in drawn.values())
    assert all((DOCS / place).is_file() for place in drawn)


def test_programs_are_started_as_a_reader_starts_them(executed):
    text = "<!-- file: a.py -->\n```python\nimport sys\n\nprint(*sys.argv)\n```\n"
    for line, printed in (
        ("python a.py b", "a.py b"),
        ("ckaudit --version", f"ckaudit {ckaudit.__version__}"),
        ("bash -c 'srun echo hi'", "hi"),
    ):
        block = f"<!-- run -->\n```sh\n{line}\n```\n<!-- screen -->\n```text\n```\n"
        written, _ = executed.renewed(text + block)
        assert screens(executed, written) == [f"{printed}\n"]


def test_the_tutorial_finds_the_mistake_that_stands_in_it():
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    assert '"labels": row[1:]' in text
    assert text.index("LIMITED") < text.index("SEV0  Targets do not belong") < text.index("OK at step")
    assert "1 finding lost: target_misalignment" in text


def test_a_change_that_fits_nothing_or_twice_is_refused(executed):
    for text in ("b = 1\n", "a = 1\na = 1\n"):
        with pytest.raises(SystemExit, match="not once in the file"):
            executed.changed_by(text, "-a = 1\n+a = 2\n")
    assert executed.changed_by("x\na\ny\n", " x\n-a\n+b\n+c\n y\n") == "x\nb\nc\ny\n"


def test_only_commands_of_ours_are_run(executed, tmp_path):
    with pytest.raises(SystemExit, match="only python, ckaudit and bash are run"):
        executed.Reader(tmp_path).follow(executed.BLOCK.search("<!-- run -->\n```sh\nrm -r out\n```\n"))
