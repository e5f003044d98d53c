"""A comparison as Markdown for a reviewer of a pull request: the numbers first, the rest folded away."""

from collections.abc import Iterator

from ckaudit.contract.schema.diff import OPEN_WORDS, Comparison, Pair
from ckaudit.contract.schema.report import Chart, Finding
from ckaudit.reports.diff import sentences as say
from ckaudit.reports.diff.sentences import GATE_LEGEND, LEGEND, rows_of
from ckaudit.reports.escape import code, escaped
from ckaudit.reports.terminal.charts import draw_curve
from ckaudit.reports.view import PLAIN, View
from ckaudit.wording import plural


def render(comparison: Comparison, view: View = PLAIN) -> str:
    """Return `comparison` as GitHub-flavoured Markdown."""
    headline = escaped(say.headline(comparison, *comparison.subjects[:2]))
    blocks = [f"### ckaudit {escaped(comparison.command)}: **{say.badge(comparison)}** {headline}"]
    if comparison.gate and comparison.gate.reasons:
        blocks.append("\n".join(f"- {escaped(reason)}" for reason in comparison.gate.reasons))
    if len(comparison.pairs) == 1:
        blocks += _pair(comparison.pairs[0], view)
    else:
        blocks.append("\n".join(_many(comparison)))
        blocks += [_folded_pair(pair, view) for pair in comparison.pairs]
    blocks += ["\n".join(f"- {escaped(note)}" for note in comparison.notes)] if comparison.notes else []
    blocks.append("\n".join(f"<sub>{line}</sub>" for line in _footer(comparison)))
    return "\n\n".join(blocks) + "\n"


def _curves(pair: Pair, *, width: int = 72) -> Iterator[str]:
    """Yield the losses of both runs as lines of block characters: Markdown in a pull request shows no inline SVG."""
    for drawn in pair.curves:
        lines: list[str] = []
        for side, values in (("the reference", drawn.left), ("the run beside it", drawn.right)):
            steps = [str(step) for step in drawn.steps]
            chart = Chart(name="loss", title=drawn.name, unit=drawn.unit, labels=steps, values=values)
            lines += [f"{drawn.name} of {side}:", *draw_curve(chart, width=width)]
        yield "\n".join([f"<pre>{escaped(lines[0])}", *map(escaped, lines[1:])]) + "</pre>"


def _many(comparison: Comparison) -> Iterator[str]:
    """Yield a table of all subjects."""
    yield f"| | {' | '.join(code(name) for name in comparison.subjects)} |"
    yield "|---|" + "---:|" * len(comparison.subjects)
    for name, *cells in rows_of(comparison):
        yield f"| {escaped(name)} | {' | '.join(escaped(cell) for cell in cells)} |"
    yield ""
    yield f"<sub>{escaped(GATE_LEGEND if comparison.gate else LEGEND)}</sub>"


def _folded_pair(pair: Pair, view: View) -> str:
    """Return one of several pairs, folded away below its verdict."""
    head = f"{code(pair.right)} against {code(pair.left)}: <b>{say.WORDS[pair.word]}</b>: {escaped(say.verdict(pair))}"
    return "\n\n".join([f"<details><summary>{head}</summary>", *_pair(pair, view), "</details>"])


def _pair(pair: Pair, view: View) -> Iterator[str]:
    """Yield the blocks of one pair."""
    if decisive := [unlike for unlike in pair.unlike if say.questions_voided(unlike, pair)]:
        lines = [
            f"- {escaped(say.meaning(unlike))} (no answer to {escaped(say.questions_voided_text(unlike, pair))})"
            for unlike in decisive
        ]
        yield "\n".join(["**Not alike**", "", *lines])
    yield from _curves(pair)
    if pair.answers:
        yield "\n".join(_questions(pair))
    if pair.parting is not None:
        yield f"**First to part**: {escaped(pair.parting.message)}"
    for title, lines in _details(pair):
        if any(lines):
            yield _fold(title, [line for line in lines if line], view)


def _details(pair: Pair) -> tuple[tuple[str, list[str]], ...]:
    """Return the parts of a pair that are folded away, each a title and its lines."""
    return (
        (
            "What differs most" if pair.parting is None else "What parted, in order",
            [
                f"step {departure.step}: {escaped(say.place(departure))} {code(say.numbers(departure))}"
                for departure in pair.propagation
            ],
        ),
        ("How far apart", [f"step {drift.step}: {escaped(drift.message)}" for drift in pair.drifts]),
        (f"Only {code(pair.right)} is ill with", [_ill(finding) for finding in pair.gained]),
        (f"Only {code(pair.left)} is ill with", [_ill(finding) for finding in pair.lost]),
        (
            "Other differences",
            [
                f"{escaped(unlike.name)}: {code(say.sides(unlike))}"
                for unlike in pair.unlike
                if not say.questions_voided(unlike, pair)
            ],
        ),
        ("Noise", [escaped(pair.noise.message), *(escaped(note) for note in pair.notes)]),
    )


def _questions(pair: Pair) -> Iterator[str]:
    """Yield the table of answers."""
    yield f"| question | {code(pair.left)} | {code(pair.right)} | difference | noise | |"
    yield "|---|---:|---:|---:|---:|---|"
    for answer in pair.answers:
        unit = f", {escaped(say.unit(answer.unit))}" if say.unit(answer.unit) else ""
        apart, share = say.difference(answer.left, answer.right), say.share(answer.left, answer.right)
        apart = " ".join(part for part in (apart, share and f"({share})") if part)
        band = say.value(answer.band)
        word = (
            f"**{say.WORDS[answer.word]}**" if answer.word in ("worse", "different", "incomparable") else say.WORDS[answer.word]
        )
        more = f" (does not count: {escaped(answer.excused)})" if answer.excused else ""
        more += f": {escaped(say.missing(answer, pair))}" if answer.word in OPEN_WORDS else ""
        yield (
            f"| {escaped(say.name_in_words(answer.question))}{unit} | {say.value(answer.left)} | {say.value(answer.right)} "
            f"| {apart or say.ABSENT} | {band} | {word}{more} |"
        )


def _ill(finding: Finding) -> str:
    return f"{finding.severity} {code(finding.code)} {escaped(finding.message)}"


def _fold(title: str, lines: list[str], view: View) -> str:
    """Return lines that a reader can unfold; only the first ones unless in verbose mode."""
    shown = lines if view.verbose else lines[: view.limit]
    more = [f"- ... and {len(lines) - len(shown)} more"] if len(lines) > len(shown) else []
    return "\n".join([f"<details><summary>{title}</summary>", "", *(f"- {line}" for line in shown), *more, "", "</details>"])


def _footer(comparison: Comparison) -> Iterator[str]:
    method = say.comparison_method(comparison, plural(comparison.files, "file"))
    yield escaped(f"{plural(len(comparison.subjects), 'subject')}: {method}")
    if comparison.gate:
        yield f"counts: {escaped(say.joined_names(comparison.gate.counts))}" + (
            f"; policy {escaped(comparison.gate.policy)}" if comparison.gate.policy else ""
        )
