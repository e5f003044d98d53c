"""`ckaudit fleet query`: an SQL query of a fleet's data set."""

from typing import Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.output import check_folder, fit_to_stdout, open_output, say
from ckaudit.errors import UsageError
from ckaudit.reports.view import PLAIN

EPILOG = """
\b
Examples:
  ckaudit fleet query 'SELECT code, count(*) AS runs FROM findings GROUP BY 1 ORDER BY 2 DESC'
  ckaudit fleet query "SELECT run, cause FROM runs WHERE facts['config.lr'] = '0.1'"
  ckaudit fleet query 'SELECT run, max(value) FROM metrics GROUP BY 1' --format csv -o peak.csv
  ckaudit fleet query 'DESCRIBE runs'
\b
Tables: runs, findings, verdicts, metrics; each holds the newest audit of each
run. The SQL is DuckDB's. A query can only read the data set, and changes
nothing. Needs the extra "fleet".
\b
Exit codes:
  0  answered, even if no row matches
  2  the query is invalid, or there is no data set
"""
FORMATS = ("terminal", "csv", "json")

Sql = Annotated[str, typer.Argument(metavar="SQL", help="One statement, in quotes.", show_default=False)]
Data = Annotated[str, typer.Option("--data", metavar="DIR", help="The data set that `ckaudit fleet` wrote.")]
Format = Annotated[str, options.file_format_option(FORMATS)]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE instead of the screen.", show_default=False)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide notes.")]


def command(
    sql: Sql,
    *,
    data: Data = "ckaudit-fleet",
    format: Format = "",  # noqa: A002  what the option is called
    output: Output = "",
    quiet: Quiet = False,
) -> int:
    """Query the data set of a fleet with SQL."""
    format = options.format_for(format, output, FORMATS)  # noqa: A001  what the option is called
    check_folder(output)
    from ckaudit.fleet.query import query
    from ckaudit.reports.query_answer import table, write_csv, write_json

    try:
        answer = query(data, sql)
        view, encoding = fit_to_stdout(PLAIN, drawn=format == "terminal" and not output)
        with open_output(output) as stream:
            if format == "terminal":
                lines = table(answer.columns, answer.rows, view)
                stream.writelines((line + "\n").encode(encoding, "backslashreplace") for line in lines)
            else:
                (write_csv if format == "csv" else write_json)(answer.columns, answer.rows, stream)
    except UsageError as error:
        return _say_where(error)
    except ModuleNotFoundError as error:
        if error.name != "duckdb":
            raise
        return _say_where(UsageError(str(error)))
    for note in () if quiet else answer.notes:
        say(f"note: {note}")
    return 0


def _say_where(error: UsageError) -> int:
    """Print an SQL error with its line breaks, because its last lines point at the place."""
    first, *others = str(error).split("\n")
    say(f"error: {first}")
    for line in others:
        say(line)
    say(f"hint: {error.hint}" if error.hint else "")
    return 2
