"""`ckaudit mcp`: the auditor as tools for agents, over the Model Context Protocol."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.output import say
from ckaudit.cli.policy_options import Config, NoConfig

if TYPE_CHECKING:
    from ckaudit.policy.acceptance import AcceptanceCriteria

EPILOG = """
\b
Examples:
  ckaudit mcp runs
  ckaudit mcp runs /data/finetuning --no-config
\b
Settings of a client: {"mcpServers": {"ckaudit": {"command": "ckaudit",
"args": ["mcp", "/home/me/runs"]}}}; docs/agents.md has more. The
client starts the server, which reads only below the named folders, follows
the policy of the folder where it is started, and writes nothing. It needs the
extra mcp.
\b
Exit codes:
  0  the client closed the connection
  2  could not serve
"""

FoldersNamed = Annotated[
    list[str], typer.Argument(metavar="FOLDER", help="Folders with runs; nothing outside of them is read.", show_default=False)
]


def command(folders: FoldersNamed, *, config: Config = "", no_config: NoConfig = False) -> int:
    """Let agents audit the runs below some folders: a Model Context Protocol server on standard input and output."""
    from ckaudit.cli.agents.folders import Folders
    from ckaudit.cli.agents.server import serve
    from ckaudit.cli.agents.tools import Auditor, tools
    from ckaudit.cli.policy_options import read_acceptance

    def criteria() -> "AcceptanceCriteria":
        return read_acceptance("triage", config=config, no_config=no_config, baseline="", update=False)

    criteria()  # report an invalid policy before the first call
    allowed = Folders(folders)
    if sys.stdin.isatty():
        say("this is a server for an MCP client, which starts it itself: ckaudit mcp --help")
    serve(tools(Auditor(allowed, criteria)), allowed)
    return 0
