"""The autopsy of an event as Markdown: the verdict, a table of what left its range, and what came of it."""

from ckaudit.audit.autopsy.result import Autopsy
from ckaudit.reports.autopsy.sentences import afterwards, box_of, earlier, finding, lines_of, others, standing, title
from ckaudit.reports.markdown_text import text
from ckaudit.reports.view import View
from ckaudit.reports.words import likelihood


def render(found: Autopsy, view: View) -> str:
    """Return the whole as GitHub-flavoured Markdown."""
    blocks = [f"### ckaudit autopsy: {text(title(found))}", text(found.verdict)]
    if found.moments:
        rows = [
            f"| {moment.step} | {'<br>'.join(text(line) for line in lines_of(moment, verbose=view.verbose))} |"
            for moment in found.moments
        ]
        blocks.append("\n".join(["| step | what left its range |", "|---|---|", *rows]))
    blocks += [text(sentence) for sentence in (standing(found), earlier(found)) if sentence]
    if after := list(afterwards(found)):
        blocks += ["**Afterwards**", "\n".join(f"- {text(line)}" for line in after)]
    if found.findings:
        lines = [finding(each) for each in found.findings]
        lines += [
            f"cause: {diagnosis.title.rstrip('.')} ({likelihood(diagnosis.confidence)}). {diagnosis.knob}"
            for diagnosis in found.diagnoses
        ]
        blocks += ["**Triage finds in these steps**", "\n".join(f"- {text(line)}" for line in lines)]
    blocks += [others(found)] if others(found) else []
    box = f"{box_of(found)} of steps {found.steps[0]} to {found.steps[-1]}, {found.tensors} tensors"
    blocks.append(f"<sub>{text(found.subject)}: {box}, {found.files} files read</sub>")
    return "\n\n".join(blocks) + "\n"
