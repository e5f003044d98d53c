"""`ckaudit resume-check`: could the training resume from its checkpoints?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.options import AllowEmpty, FailOn, Format, Output, Quiet, Verbose, base, severity
from ckaudit.cli.output import progress, say
from ckaudit.errors import UsageError
from ckaudit.wording import plural

if TYPE_CHECKING:
    from ckaudit.resume.check import ResumeCheckResult

EPILOG = """
\b
Examples:
  ckaudit resume-check checkpoints/
  ckaudit resume-check runs/nano/checkpoint-500 --format json
  ckaudit resume-check checkpoints/ --write-checksums checkpoints/SHA256SUMS
  ckaudit resume-check checkpoints/ --into runs/nano
\b
These formats are read, without unpickling and without torch: torch.save,
safetensors, folders of torch.distributed.checkpoint, of Hugging Face and of
Lightning. Files are compared with lists named *.sha256 or SHA256SUMS beside
the checkpoints.
\b
Exit codes:
  0  nothing found at or above --fail-on
  1  findings at or above --fail-on
  2  could not audit, or nothing could be judged
"""

Folder = Annotated[
    str, typer.Argument(metavar="DIR", help="The folder that a training saves to, or one checkpoint.", show_default=False)
]
Checksums = Annotated[
    str, typer.Option("--checksums", metavar="FILE", help="Compare files with this list of sha256sum.", show_default=False)
]
WriteChecksums = Annotated[
    str, typer.Option("--write-checksums", metavar="FILE", help="Write a list that sha256sum --check reads.", show_default=False)
]
Into = Annotated[
    str,
    typer.Option(
        "--into", metavar="RUN", help="Add checkpoint_ok, _size and _time to the scalars of this run folder.", show_default=False
    ),
]


def command(
    folder: Folder,
    *,
    checksums: Checksums = "",
    write_checksums: WriteChecksums = "",
    into: Into = "",
    format: Format = "",  # noqa: A002  what the option is called
    output: Output = "",
    fail_on: FailOn = "sev1",
    allow_empty: AllowEmpty = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """List resume checkpoints and check that each is complete, finite and has what a resume needs."""
    from ckaudit.cli.deliver import OutputRequest, deliver
    from ckaudit.cli.measure_options import check_into
    from ckaudit.cli.output import check_folder

    check_into(into, None)
    check_folder(write_checksums)
    if checksums and not Path(checksums).is_file():
        raise UsageError(f"--checksums: there is no file {checksums}", hint="--write-checksums FILE makes one")
    request = OutputRequest(
        format=format,
        output=output,
        fail_on=severity(fail_on),
        allow_empty=allow_empty,
        verbose=verbose,
        quiet=quiet,
        base=base([folder if Path(folder).is_dir() else str(Path(folder).parent)]),
    )
    from ckaudit.resume.check import resume_check

    with progress("reading bytes", quiet=quiet) as tick:
        checked = resume_check(
            Path(folder), sums=Path(checksums) if checksums else None, hashed=bool(write_checksums), progress=tick
        )
    if write_checksums:
        _write_checksums(checked, write_checksums)
    code = deliver(checked.report, request)
    if into:
        _add(checked, Path(into))
    return code


def _write_checksums(checked: "ResumeCheckResult", output: str) -> None:
    """Write the list of all checksums, in the format of sha256sum."""
    from ckaudit.cli.output import write_text
    from ckaudit.resume.checksums import write_list

    write_text(write_list(checked.digests, Path(output)), output=output)
    say(f"wrote {plural(len(checked.digests), 'checksum')} to {output}")


def _add(checked: "ResumeCheckResult", run: Path) -> None:
    """Add the results to the scalars of a run, at the steps of the checkpoints."""
    from ckaudit.contract.io.add_line import add_lines
    from ckaudit.resume.check import LOG, facts_by_step

    facts = facts_by_step(checked.report)
    added, left = add_lines(run, LOG, facts)
    if added:
        say(f"added {plural(sum(len(facts[step]) for step in added), 'value')} at {plural(len(added), 'step')} to {run / LOG}")
    if left:
        say(f"left out {plural(len(left), 'checkpoint')} after the last step of {run}: step {left[0]:,} first")
    if not facts:
        say(f"nothing added to {run}: no checkpoint says its step")
