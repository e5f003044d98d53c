"""The autopsy of an event as Markdown: the verdict, a table of what left its range, and what came of it."""

from ckaudit.audit.autopsy.result import Autopsy
from ckaudit.reports.autopsy.sentences import afterwards, box_of, earlier, finding, lines_of, others, standing, title
from ckaudit.reports.escape import escaped
from ckaudit.reports.view import View
from ckaudit.reports.words import likelihood


def render(autopsy: Autopsy, view: View) -> str:
    """Return the whole as GitHub-flavoured Markdown."""
    blocks = [f"### ckaudit autopsy: {escaped(title(autopsy))}", escaped(autopsy.verdict)]
    if autopsy.moments:
        rows = [
            f"| {moment.step} | {'<br>'.join(escaped(line) for line in lines_of(moment, verbose=view.verbose))} |"
            for moment in autopsy.moments
        ]
        blocks.append("\n".join(["| step | what left its range |", "|---|---|", *rows]))
    blocks += [escaped(sentence) for sentence in (standing(autopsy), earlier(autopsy)) if sentence]
    if after := list(afterwards(autopsy)):
        blocks += ["**Afterwards**", "\n".join(f"- {escaped(line)}" for line in after)]
    if autopsy.findings:
        lines = [finding(each) for each in autopsy.findings]
        lines += [
            f"cause: {diagnosis.title.rstrip('.')} ({likelihood(diagnosis.confidence)}). {diagnosis.knob}"
            for diagnosis in autopsy.diagnoses
        ]
        blocks += ["**Triage finds in these steps**", "\n".join(f"- {escaped(line)}" for line in lines)]
    blocks += [others(autopsy)] if others(autopsy) else []
    box = f"{box_of(autopsy)} of steps {autopsy.steps[0]} to {autopsy.steps[-1]}, {autopsy.tensors} tensors"
    blocks.append(f"<sub>{escaped(autopsy.subject)}: {box}, {autopsy.files} files read</sub>")
    return "\n\n".join(blocks) + "\n"
