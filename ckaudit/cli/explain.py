"""`ckaudit explain`: what a name means, offline."""

from typing import Annotated

import typer

from ckaudit.cli.options import checked_choice, format_option
from ckaudit.cli.output import fit_to_stdout, write_text
from ckaudit.reports import TOLD_FORMATS, render
from ckaudit.reports.view import PLAIN

EPILOG = """
\b
Examples:
  ckaudit explain                        every name, with one sentence each
  ckaudit explain max_attn_logit
  ckaudit explain M19 F6 LOSS001 dead_path VAL009
  ckaudit explain attn_entropy --format markdown
\b
Exit codes:
  0  explained
  2  a name is unknown; the others are explained
"""


def _names() -> list[str]:
    from ckaudit.explain import known_names

    return known_names()


Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="A metric, rule, cause or violation, by name or code; a row such as M19, F6 or TRI-4. Without one, all are listed.",
        show_default=False,
        autocompletion=_names,
    ),
]
Format = Annotated[str, format_option(TOLD_FORMATS)]


def command(names: Names = None, *, format: Format = "terminal") -> int:  # noqa: A002  what the option is called
    """Explain a name: formula, thresholds with their source, playbook, and its healthy and unhealthy shapes."""
    checked_choice(format, TOLD_FORMATS, "format")
    from ckaudit.explain import explain, groups, is_known, refuse_unknown

    view, encoding = fit_to_stdout(PLAIN, drawn=format == "terminal")
    if not names:
        write_text(render(groups(), format, view, kind="Groups"), encoding)
        return 0
    if known := [name for name in names if is_known(name)]:
        write_text(render(explain(known), format, view, kind="Pages"), encoding)
    refuse_unknown([name for name in names if not is_known(name)])
    return 0
