"""Draws compared with their faults: how often a fault is found, its cause named, and a healthy training falsely flagged."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from ckaudit import __version__
from ckaudit.contract.schema.report import Finding, Report
from ckaudit.errors import UsageError
from ckaudit.lab.score.scoreboard import Share, share
from ckaudit.lab.score.verdict import COUNTING, GRAVE
from ckaudit.lab.wild.foresight import Foresight, LeadRow, foresight_of, lead_rows
from ckaudit.lab.wild.forms import FORMS, Form, as_form
from ckaudit.lab.wild.pair import CLOCK, HEALTHY, ILL, PairNote, ends, has_effect, pair_folder, read_note, twin_learns

SURE = 0.7  # a reader takes a cause with this confidence for the truth


class TriageVerdict(Struct, frozen=True, kw_only=True):
    """The result of triage for one recording in one form.

    Attributes:
        codes: Severity and code of its findings, without notes.
        causes: The causes, likeliest first.
        confidence: Confidence of the first of them.
        places: Places that findings and the first cause name.
        error: Why it failed; empty: it did not.
    """

    codes: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    confidence: float = 0.0
    places: tuple[str, ...] = ()
    error: str = ""

    @property
    def is_grave(self) -> bool:
        """Whether there is a finding of sev0 or sev1."""
        return any(code.startswith(GRAVE) for code in self.codes)


class DrawOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one draw in one form.

    Attributes:
        index: Number of the draw.
        pair: The note on the fault.
        form: The form.
        has_effect: Whether the fault made the training worse, or changed weights, gradients or code and with them the losses.
        is_healthy: Whether the twin learns.
        ill: Result for the ill recording.
        healthy: Result for its twin.
        foresight: Steps of the reports, for a slow fault with an effect; None: for any other.
    """

    index: int
    pair: PairNote
    form: Form
    has_effect: bool
    is_healthy: bool
    ill: TriageVerdict
    healthy: TriageVerdict
    foresight: Foresight | None = None

    @property
    def is_found(self) -> bool:
        """Whether the ill recording has a finding of sev0 to sev2."""
        return bool(self.ill.codes)

    @property
    def is_right(self) -> bool:
        """Whether the likeliest cause is the true one, or an equivalent one."""
        return self.ill.causes[:1] != () and self.ill.causes[0] in (self.pair.truth, *self.pair.acceptable)

    @property
    def is_among_three(self) -> bool:
        """Whether one of the first three causes is the true one, or an equivalent one."""
        return any(cause in (self.pair.truth, *self.pair.acceptable) for cause in self.ill.causes[:3])

    @property
    def is_sure_and_wrong(self) -> bool:
        """Whether a wrong cause is named with confidence."""
        return bool(self.ill.causes) and not self.is_right and self.ill.confidence >= SURE

    @property
    def is_placed(self) -> bool:
        """Whether the changed module, or something in it, is named; a trainer may add a prefix."""
        return any(f".{self.pair.place}." in f".{place.replace('/', '.')}." for place in self.ill.places)


def outcomes_of(
    cache: Path,
    split: str,
    seed: int,
    *,
    forms: Sequence[Form] = FORMS,
    jobs: int = 2,
    progress: Callable[[int, int], object] | None = None,
) -> list[DrawOutcome]:
    """Audit every recorded draw of a drawing, in every form.

    Args:
        cache: Folder of recordings.
        split: Split of the families.
        seed: Number of the drawing.
        forms: The forms to score.
        jobs: Number of processes.
        progress: Called with the number of judged draws and of all draws.

    Raises:
        UsageError: If no draw of it is recorded.
    """
    recorded = [int(folder.name.rpartition(".")[2]) for folder in sorted(cache.glob(f"{split}.{seed}.*")) if read_note(folder)]
    if not recorded:
        raise UsageError(
            f"{cache} holds no draw of {split} with seed {seed}",
            hint=f"ckaudit lab wild --split {split} --seed {seed} records them",
        )
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    work = [(pair_folder(cache, split, seed, index), index, tuple(forms)) for index in recorded]
    outcomes: list[DrawOutcome] = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done, judged in enumerate(pool.map(_judge, work), 1):
            outcomes += judged
            if progress:
                progress(done, len(work))
    return outcomes


def _judge(work: tuple[Path, int, tuple[Form, ...]]) -> list[DrawOutcome]:
    folder, index, forms = work
    pair = read_note(folder)
    if pair is None:
        return []
    effect, learns = has_effect(pair, folder / ILL, folder / HEALTHY), twin_learns(folder / HEALTHY)
    since = pair.onset if pair.onset > 1 else 0  # a fault from the start shows at step 0 already
    return [
        DrawOutcome(
            index=index,
            pair=pair,
            form=form,
            has_effect=effect,
            is_healthy=learns,
            ill=judge(folder / ILL, form, since=since),
            healthy=judge(folder / HEALTHY, form),
            foresight=foresight_of(folder, pair, form, is_healthy=learns) if pair.slow and effect else None,
        )
        for form in forms
    ]


def judge(run: Path, form: Form, *, since: int = 0) -> TriageVerdict:
    """Audit a recording in a form, under a neutral name; findings that end before a step do not count."""
    from ckaudit.audit import triage

    with TemporaryDirectory(prefix="run-") as temporary:
        try:
            return _verdict(triage(as_form(run, form, Path(temporary) / "run")), since)
        except Exception as error:  # noqa: BLE001  one recording that breaks the auditor must not end the score: it is listed
            return TriageVerdict(error=f"{type(error).__name__}: {error}")


def counting_findings(report: Report, since: int) -> list[Finding]:
    """Return the counting findings of a report: sev0 to sev2, not ended before a step, and not about the machine."""
    return [
        finding
        for finding in report.findings
        if finding.severity in COUNTING and ends(finding) >= since and not finding.code.startswith(CLOCK)
    ]


def _verdict(report: Report, since: int) -> TriageVerdict:
    counting = counting_findings(report, since)
    diagnoses = [one for one in report.diagnoses if not all(code.startswith(CLOCK) for code in one.explains)]
    first = diagnoses[0] if diagnoses else None
    places = [place for finding in counting for place in (finding.where, *finding.also, *finding.path)]
    return TriageVerdict(
        codes=tuple(dict.fromkeys(f"{finding.severity} {finding.code}" for finding in counting)),
        causes=tuple(diagnosis.cause for diagnosis in diagnoses),
        confidence=first.confidence if first else 0.0,
        places=tuple(place for place in dict.fromkeys([*places, *([first.where, *first.path] if first else [])]) if place),
    )


class FormRow(Struct, frozen=True, kw_only=True):
    """A row of a table.

    Attributes:
        name: Name of the row.
        found: Draws with an effect that are found.
        right: Draws with an effect whose likeliest cause is right.
        among_three: Draws with an effect whose cause is among the first three.
        sure_and_wrong: Draws with an effect and a wrong cause named with confidence.
        placed: Draws with an effect and a place that is named.
        grave: Healthy twins with a finding of sev0 or sev1.
        flagged: Healthy twins with any finding of sev0 to sev2.
        harmless_flagged: Draws without effect that have a finding.
        errors: Audits that failed.
    """

    name: str
    found: Share
    right: Share
    among_three: Share
    sure_and_wrong: Share
    placed: Share
    grave: Share
    flagged: Share
    harmless_flagged: Share
    errors: int


def row(name: str, outcomes: Sequence[DrawOutcome]) -> FormRow:
    """Return the sums of outcomes as a row."""
    felt = [outcome for outcome in outcomes if outcome.has_effect]
    harmless = [outcome for outcome in outcomes if not outcome.has_effect]
    placed = [outcome for outcome in felt if outcome.pair.place]
    healthy = [outcome for outcome in outcomes if outcome.is_healthy]
    return FormRow(
        name=name,
        found=share(sum(outcome.is_found for outcome in felt), len(felt)),
        right=share(sum(outcome.is_right for outcome in felt), len(felt)),
        among_three=share(sum(outcome.is_among_three for outcome in felt), len(felt)),
        sure_and_wrong=share(sum(outcome.is_sure_and_wrong for outcome in felt), len(felt)),
        placed=share(sum(outcome.is_placed for outcome in placed), len(placed)),
        grave=share(sum(outcome.healthy.is_grave for outcome in healthy), len(healthy)),
        flagged=share(sum(bool(outcome.healthy.codes) for outcome in healthy), len(healthy)),
        harmless_flagged=share(sum(outcome.is_found for outcome in harmless), len(harmless)),
        errors=sum(bool(verdict.error) for outcome in outcomes for verdict in (outcome.ill, outcome.healthy)),
    )


class WildScore(Struct, frozen=True, kw_only=True):
    """The score on a drawing.

    Attributes:
        tool: The scored tool, with its version.
        split: Split of the families.
        seed: Number of the drawing.
        draws: Number of recorded draws.
        forms: A row for each form, over all draws.
        faults: A row for each fault, in the form of our recorder.
        families: A row for each family, in the form of our recorder.
        wrong: How often each wrong cause was named with confidence, by fault, in all forms.
        alarms: How often each finding occurred in a healthy twin, by form.
        broken: Audits that failed, and why.
        leads: Lead of the reports on slow faults over the loss, by form.
        lead_faults: The same in the form of our recorder, by fault.
        lead_codes: The same by code, the most frequent leads first.
    """

    tool: str
    split: str
    seed: int
    draws: int
    forms: list[FormRow]
    faults: list[FormRow]
    families: list[FormRow]
    wrong: dict[str, int]
    alarms: dict[str, int]
    broken: dict[str, str]
    leads: list[LeadRow]
    lead_faults: list[LeadRow]
    lead_codes: list[LeadRow]


def summarized(split: str, seed: int, outcomes: Sequence[DrawOutcome]) -> WildScore:
    """Return the sums over the outcomes of a drawing."""
    whole = [outcome for outcome in outcomes if outcome.form == "recorder"]
    sure = [outcome for outcome in outcomes if outcome.has_effect and outcome.is_sure_and_wrong]
    wrong = Counter(f"{outcome.ill.causes[0]} for {outcome.pair.fault}" for outcome in sure)
    alarms = Counter(f"{code} ({outcome.form})" for outcome in outcomes if outcome.is_healthy for code in outcome.healthy.codes)
    leads, lead_faults, lead_codes = lead_rows([outcome.foresight for outcome in outcomes if outcome.foresight])
    return WildScore(
        tool=f"ckaudit {__version__}",
        split=split,
        seed=seed,
        draws=len({outcome.index for outcome in outcomes}),
        forms=[row(form, [outcome for outcome in outcomes if outcome.form == form]) for form in FORMS],
        faults=_by(whole, lambda outcome: outcome.pair.fault),
        families=_by(whole, lambda outcome: outcome.pair.family),
        wrong=dict(wrong.most_common()),
        alarms=dict(alarms.most_common()),
        broken={
            f"draw {outcome.index}, {half}, {outcome.form}": verdict.error
            for outcome in outcomes
            for half, verdict in ((ILL, outcome.ill), (HEALTHY, outcome.healthy))
            if verdict.error
        },
        leads=leads,
        lead_faults=lead_faults,
        lead_codes=lead_codes,
    )


def _by(outcomes: Sequence[DrawOutcome], key: Callable[[DrawOutcome], str]) -> list[FormRow]:
    return [row(name, [outcome for outcome in outcomes if key(outcome) == name]) for name in sorted(set(map(key, outcomes)))]
