"""Foreign text in Markdown: shown letter by letter, whatever it holds."""

import re

from ckaudit.reports.escape import visible

SPECIAL = re.compile(r"[\\`*_{}\[\]<>|#~!&$]")
# A comment splits the text, so that no name calls a person and no address becomes a link.
LINKING = re.compile(r"@|://|www\.", re.IGNORECASE)


def text(raw: str) -> str:
    """Return `raw` as Markdown that shows it letter by letter: no markup, no HTML, no mention, no link."""
    escaped = SPECIAL.sub(lambda match: f"&#{ord(match[0])};", visible(raw))
    return LINKING.sub(lambda match: match[0][0] + "<!-- -->" + match[0][1:], escaped)


def code(raw: str) -> str:
    """Return `raw` as a code span that also survives inside a table."""
    return f"<code>{text(raw)}</code>"
