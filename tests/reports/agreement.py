"""What the formats of one audit say, read back out of them; `python -m tests.reports.agreement` holds all fixtures together."""

import html
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ckaudit.contract.schema.report import SEVERITIES
from tests.in_process import ckaudit

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
STEPS = re.compile(r"steps? \d+(?:-\d+)?(?:, worst \d+)?")
GRAVE = r"sev0|sev1|sev2|note"


class FormatContent(NamedTuple):
    """What a format says.

    Attributes:
        word: The severity, or how well a run without one was judged.
        step: The last step that was judged.
        findings: Severity, code and steps of each finding, sorted; of the formats that leave some out, None.
        counts: Findings by severity.
        cause: The first cause: its name, or on a page its title.
    """

    word: str
    step: int | None
    findings: list[tuple[str, str, str]] | None
    counts: dict[str, int]
    cause: str | None


def printed(*arguments: str | Path) -> str:
    """Return what a command prints."""
    done = ckaudit(*arguments, cwd=ROOT)
    assert done.returncode in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr
    return str(done.stdout)


def step_in(text: str, after: str = "") -> int | None:
    found = re.search(rf" at step (\d+){after}", text)
    return int(found[1]) if found else None


def counted(findings: list[tuple[str, str, str]]) -> dict[str, int]:
    known = [severity for severity, _, _ in findings]
    return {severity: known.count(severity) for severity in SEVERITIES if severity in known}


def counts_in(text: str) -> dict[str, int]:
    return {severity: int(count.replace(",", "")) for count, severity in re.findall(rf"([\d,]+) ({GRAVE})\b", text)}


def of_json(text: str) -> FormatContent:
    report = json.loads(text)
    findings = sorted((each["severity"], each["code"], interval(each)) for each in report["findings"])
    causes = [each["cause"] for each in report.get("diagnoses", [])]
    severity = report.get("severity")
    return FormatContent(severity or "", report.get("step"), findings, counted(findings), next(iter(causes), None))


def interval(finding: dict[str, Any]) -> str:
    """Return the steps of a finding as the formats for people write them."""
    first, last, worst = (finding.get(name) for name in ("first_step", "last_step", "worst_step"))
    if first is None:
        return "" if worst is None else f"step {worst}"
    if last in (None, first):
        return f"step {first}"
    return f"steps {first}-{last}" + (f", worst {worst}" if worst not in (None, first, last) else "")


def of_terminal(text: str) -> FormatContent:
    whole = " ".join(text.split())
    rows = re.findall(
        rf"^  ({GRAVE})\s+([A-Z][A-Z0-9.]*\d)  (.*(?:\n {{12,}}\S.*)*)", text.partition("\nWhat to do now")[0], re.MULTILINE
    )
    findings = sorted((severity, code, steps_of(rest)) for severity, code, rest in rows)
    cause = re.search(r"^     (\w+) explains ", text, re.MULTILINE)
    word = re.match(r"NOT JUDGED|\w+", text)
    assert word
    return FormatContent(word[0], step_in(whole, r", [\d,]+ files? read"), findings, counted(findings), cause and cause[1])


def steps_of(text: str) -> str:
    found = STEPS.search(" ".join(text.split()))
    return found[0] if found else ""


def of_markdown(text: str) -> FormatContent:
    text = html.unescape(text)
    word = re.search(r"\*\*(.*?)\*\*", text)
    foot = text.rsplit("\n<sub>", text.count("\n<sub>"))[1]
    cause = re.search(r"Evidence for (\w+)", text)
    assert word
    return FormatContent(word[1], step_in(foot), None, counts_in(foot.split(": ", 1)[1].split(" read,")[0]), cause and cause[1])


def of_brief(text: str) -> FormatContent:
    first, second = text.splitlines()[:2]
    cause = re.search(r"^cause 1: (\w+)", text, re.MULTILINE)
    word = re.match(r"NOT JUDGED|\w+", first)
    assert word
    return FormatContent(
        word[0], step_in(first), None, counts_in(second) if re.match(r"\d+ findings?:", second) else {}, cause and cause[1]
    )


def of_page(text: str) -> FormatContent:
    body = html.unescape(re.sub(r"<script.*?</script>|<svg.*?</svg>", "", text[text.index("<body") :], flags=re.DOTALL))
    head = body[: body.index("</header>")]
    word = re.search(r'<h1>.*?<span class="badge [^"]*">([^<]*)', head)
    items = re.findall(rf'<li id="f-\d+"[^>]*><span class="badge ({GRAVE})">.*?<code>(.*?)</code>(.*?)</li>', body, re.DOTALL)
    findings = sorted(
        (severity, code, steps_of("".join(re.findall(r'<span class="dim"> (step.*?)</span>', rest))))
        for severity, code, rest in items
    )
    cause = re.search(r"<h3>First cause</h3><p><span[^>]*>\w+</span> (.*?) <span", body)
    assert word
    return FormatContent(word[1], step_in(head), findings, counted(findings), cause and cause[1])


FORMATS = {"terminal": of_terminal, "markdown": of_markdown, "brief": of_brief}
WORDS = {"no finding": {"OK", "NOT JUDGED"}, "limited": {"LIMITED", "NOT JUDGED", "NOTE"}}
"""What a page calls a run without an illness, and the other formats."""


def texts(source: Path, page: Path, options: tuple[str, ...] = ()) -> dict[str, str]:
    """Return what each format prints of a run or a log."""
    outputs = {form: printed("triage", source, "-v", "--format", form, *options) for form in ("json", *FORMATS)}
    printed("report", source, "-o", page, *options)
    return outputs | {"page": page.read_text(encoding="utf-8")}


def disagreements(outputs: dict[str, str]) -> list[str]:
    """Return where formats say something else than JSON does."""
    report, found = json.loads(outputs["json"]), []
    whole = of_json(outputs["json"])
    told = {form: read(outputs[form]) for form, read in FORMATS.items()} | {"page": of_page(outputs["page"])}
    titles = {each["cause"]: each["title"] for each in report.get("diagnoses", [])}
    word = told["terminal"].word
    for form, each in told.items():
        is_ill = whole.word in ("sev0", "sev1", "sev2")
        words = {whole.word} if is_ill else WORDS.get(each.word, {each.word.upper()}) if form == "page" else {each.word}
        if (each.word.lower() if is_ill else word) not in words:
            found.append(f"{form} says {each.word}, JSON {whole.word or 'nothing'}, the terminal {word}")
        if each.step != whole.step:
            found.append(f"{form} is of step {each.step}, JSON of {whole.step}")
        if each.findings is not None and each.findings != whole.findings:
            found.append(f"{form} has {each.findings}, JSON {whole.findings}")
        if each.counts != whole.counts:
            found.append(f"{form} counts {each.counts}, JSON {whole.counts}")
        cause = titles.get(whole.cause or "") if form == "page" else whole.cause
        if each.cause != cause:
            found.append(f"{form} has {each.cause} first, JSON {cause}")
    return found + contradictions(report) + foreign_calls(report, outputs)


def contradictions(report: dict[str, Any]) -> list[str]:
    """Return where advice of one report contradicts itself."""
    knobs = " ".join(each["knob"] for each in report.get("diagnoses", []))
    plan, found = " ".join(report.get("response", [])), []
    kept = re.search(r"keep step (\d+)", knobs)
    good = re.search(r"checkpoints before step (\d+) are good", plan)
    lowest = re.search(r"validation is lowest (?:later, )?at step (\d+)", plan)
    if "known to be good" in plan and "the last good checkpoint" in plan:
        found.append("the last good checkpoint is to be kept, and none is known to be good")
    if kept and lowest and kept[1] != lowest[1]:
        found.append(f"step {kept[1]} is to be kept, and validation is lowest at {lowest[1]}")
    if kept and "known to be good" in plan and not lowest:
        found.append(f"step {kept[1]} is to be kept, and none is known to be good")
    if kept and good and not lowest and int(kept[1]) >= int(good[1]) and "going back loses" not in plan:
        found.append(f"step {kept[1]} is to be kept, and checkpoints before {good[1]} are good")
    return found


def foreign_calls(report: dict[str, Any], outputs: dict[str, str]) -> list[str]:
    """Return the calls of a recorder that formats tell to whom has none: unless one is made beside them."""
    facts = " ".join([*report.get("notes", []), report["subject"]])
    if not re.search(r"read as (?!ckaudit)", facts):
        return []
    plain = {
        form: html.unescape(re.sub(r"<script.*?</script>|<[^>]+>", "\n", text, flags=re.DOTALL)) for form, text in outputs.items()
    }
    return [
        f"{form}: {line.strip()[:120]}"
        for form, text in plain.items()
        for line in text.splitlines()
        if re.search(r"(?<!ckaudit\.)\b(?:recorder|callback)\.\w+", line) and not re.search(r"Recorder(?:Callback)?\(", line)
    ]


def sources() -> list[tuple[Path, tuple[str, ...]]]:
    """Return every recorded run and every log among the fixtures, with the options that it needs."""
    runs = [path.parent for path in sorted((FIXTURES / "runs").glob("*/run.json"))]
    endings = {".csv", ".log", ".txt", ".jsonl", ".json", ".v2"}
    logs = [
        path
        for path in sorted((FIXTURES / "real").rglob("*"))
        if path.suffix in endings and path.name != "INDEX.json" and "LICENSE" not in path.name
    ]
    trackers = [
        FIXTURES / "trackers" / name
        for name in ("clearml", "comet", "dvclive", "keras/history.json", "lightning_logs", "mlruns", "ray", "sacred")
    ]
    trackers += sorted((FIXTURES / "trackers" / "wandb").rglob("*.wandb"))
    two = {
        "gdn_baseline_seq8192_two_runs.txt",
        "gdn_hybrid_seq32768_two_runs.txt",
        "clearml",
        "comet",
        "lightning_logs",
        "mlruns",
        "ray",
        "sacred",
    }
    return [(path, ("--run", "1") if path.name in two else ()) for path in [*runs, *logs, *trackers]]


def main() -> int:
    """Compare the formats of everything, and print where they disagree."""
    count = 0
    for source, options in sources():
        page = Path("/tmp") / "agreement.html"
        page.unlink(missing_ok=True)
        try:
            found = disagreements(texts(source, page, options))
        except (ValueError, OSError, AssertionError, IndexError) as error:
            found = [f"{type(error).__name__}: {error}"]
        for each in found:
            sys.stdout.write(f"{source.relative_to(FIXTURES)}: {each}\n")
        count += bool(found)
    sys.stdout.write(f"{len(sources())} sources, {count} of them disagree\n")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
