"""`docs/rows-by-form.md`: what is judged of each row of the playbook in each form: `python -m tests.inventory.rows_by_form`."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, convert

from ckaudit.audit import triage
from ckaudit.contract.schema.report import Report
from tests.inventory.forms import CADENCE, FIFTEEN, scalars, seed_checkpoints, trainer_log
from tests.inventory.ill import SEED, TRAINERS, logged
from tests.inventory.sources import HERE, PHASES, ids, table

FORMS = {
    "recorder": "`Recorder`",
    "seed": "the seed's JSON alone",
    "scalars": "scalars alone",
    "log": "a trainer's log",
    "fifteen": "15 points",
}
MAP = {"MAP-1": "D1.1", "MAP-2": "D1.2", "MAP-3": "D3.1", "MAP-4": "D2.2", "MAP-5": "D4.1", "MAP-6": "D6.1", "MAP-7": "D6.2"}
"""The question that each row of the map leads to first."""
LOGGED_STEPS = tuple(range(0, 5001, 25))
LOGGED_FEW = (0, 50, 100, 250, 500, 750, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000)
TRAINERS_STEPS = tuple(range(20, 1001, 20))
INTRODUCTION = """# Rows of the playbook by form of the run

Written by `python -m tests.inventory.rows_by_form` from `tests/inventory/rows_by_form.toml`, whose test writes a healthy run and
an ill one in each form, and compares what `ckaudit triage --questions` says. *judged* names the illness that is found, as
`tests/inventory/ill.py` has it, and the rules that find it, or else the question alone. Any other cell says what is missing.

- `Recorder`: recorded trainings, or small cases with the fields that it writes; `docs/coverage.md` names all of them.
- The seed's JSON alone: the 28 checkpoints up to step 1,000 with the fields that the seed's contract prints, nothing beside.
- Scalars alone: `scalars.jsonl` with names of the catalogue, without checkpoints or run.json.
- A trainer's log: `trainer_state.json` of the Hugging Face Trainer, 50 lines and evaluations.
- 15 points: the seed's JSON, or else scalars, at 15 steps.
"""


class Judged(Struct, frozen=True, forbid_unknown_fields=True):
    """A cell whose row is judged.

    Attributes:
        ill: Name of the illness.
        finds: Codes of which one must be found; none: the question answers.
        word: What the question must answer then.
        healthy: What it may answer where all is well, other than "good" and "watch".
        open: Whether it could be judged and is not yet.
    """

    ill: str
    finds: tuple[str, ...] = ()
    word: str = "bad"
    healthy: str = "watch"
    open: bool = False


Cell = Judged | str


@cache
def cells() -> dict[str, dict[str, Cell]]:
    """Return the cell of every row by form; a row of the map has those of its question."""
    named = {form: {row: _cell(each) for row, each in rows.items()} for form, rows in table("rows_by_form").items()}
    named["recorder"] = dict(_recorded())
    fifteen = named.get("fifteen", {})
    named["fifteen"] = {row: fifteen.get(row) or _of_few(row, named) for row in named["seed"]}
    for rows in named.values():
        rows |= {row: rows[question] for row, question in MAP.items()}
    return {form: named[form] for form in FORMS}


def _cell(each: object) -> Cell:
    return each if isinstance(each, str) else convert(each, Judged)


def _of_few(row: str, named: dict[str, dict[str, Cell]]) -> Cell:
    """Return the cell of the seed's JSON, or that of scalars where that one is not judged."""
    return named["scalars"][row] if isinstance(named["seed"][row], str) else named["seed"][row]


def _recorded() -> dict[str, Cell]:
    """Return what is shown by recorded trainings: a healthy one and an ill one."""
    found: dict[str, Cell] = {}
    for row, words in {row: words for phase in table("matrix").values() for row, words in phase.items()}.items():
        ill = next((each for word in ("bad", "watch") for each in words.get(word, ())), "")
        found[row] = Judged(ill)
    for row, look in table("first_look").items():
        if row.startswith("TRI"):
            found[row] = Judged(look["ill"][0], tuple(look["rules"]))
    return found


def rows() -> list[str]:
    """Return the rows of the cheat sheet, the matrix, the memorization protocol and the map."""
    return [row for row in ids() if row.startswith(("TRI", "D", "MP", "MAP"))]


@cache
def report(form: str, ill: str) -> Report:
    """Return what triage says of a run of a form, healthy where `ill` is empty."""
    with TemporaryDirectory() as folder:
        return triage(_write(Path(folder) / "run", form, ill), questions=PHASES)


def _write(folder: Path, form: str, ill: str) -> Path:
    if form in ("seed", "fifteen of seed"):
        bends = [SEED[ill]] if ill else []
        return seed_checkpoints(folder, CADENCE if form == "seed" else FIFTEEN, *bends)
    if form == "log":
        return trainer_log(folder, TRAINERS_STEPS, {name: curve for name, curve in logged(ill).items() if name in TRAINERS})
    steps = LOGGED_STEPS if form == "scalars" else LOGGED_FEW
    return scalars(folder, steps, logged(ill))


def input_of(form: str, row: str) -> str:
    """Return the form in which a row is written: 15 points are checkpoints or scalars."""
    if form != "fifteen":
        return form
    return "fifteen of scalars" if isinstance(cells()["seed"][row], str) else "fifteen of seed"


def problem(form: str, row: str, cell: Judged) -> str:
    """Return what is wrong with the verdict on the ill run of a cell or on the healthy one; empty: it is judged."""
    ill, well = report(input_of(form, row), cell.ill), report(input_of(form, row), "")
    if cell.finds and not (found := {each.code for each in ill.findings if each.severity != "note"}) & set(cell.finds):
        return f"{cell.ill}: found {sorted(found)}"
    if not cell.finds and (word := answer(ill, row)) != cell.word:
        return f"{cell.ill}: answered {word}"
    if not row.startswith("TRI") and (word := answer(well, row)) not in ("good", "watch", cell.healthy):
        return f"healthy: answered {word}"
    return ""


def answer(found: Report, row: str) -> str:
    """Return the word that a question was answered with."""
    (word,) = [each.word for phase in found.interview for each in phase.answers if each.id == row]
    return word


def document() -> str:
    """Return the whole of `docs/rows-by-form.md`."""
    head = ["row", "what it is about", *FORMS.values()]
    lines = [INTRODUCTION, _line(head), _line(["---"] * len(head))]
    lines += [_line([row, ids()[row], *(_shown(cells()[form][row], form, row) for form in FORMS)]) for row in rows()]
    judged = {form: sum(isinstance(cell := cells()[form][row], Judged) and not cell.open for row in rows()) for form in FORMS}
    told = ", ".join(f"{FORMS[form]} {count}" for form, count in judged.items())
    return "\n".join([*lines, "", f"Judged of {len(rows())} rows: {told}.", ""])


def _line(row_cells: list[str]) -> str:
    return f"| {' | '.join(row_cells)} |"


def _shown(cell: Cell, form: str, row: str) -> str:
    if isinstance(cell, str):
        return f"missing: {cell}"
    if cell.open:
        return "not judged yet"
    by = ", ".join(cell.finds) or MAP.get(row, row)
    return f"judged ({cell.ill}: {by})".replace("|", "/") if form != "recorder" else f"judged ({cell.ill})".replace("|", "/")


def closed() -> list[str]:
    """Return the open cells that are judged by now."""
    waiting = [
        (form, row, cell)
        for form in FORMS
        for row, cell in cells()[form].items()
        if isinstance(cell, Judged) and cell.open and row not in MAP
    ]
    return [f"[{form}] {row}" for form, row, cell in waiting if not problem(form, row, cell)]


if __name__ == "__main__":
    print("judged by now, no longer open:", ", ".join(closed()) or "none")  # noqa: T201
    (HERE.parents[1] / "docs" / "rows-by-form.md").write_text(document(), encoding="utf-8")
