"""How a policy names rules and violations: by code, by name, or by a pattern of either."""

from fnmatch import fnmatchcase


def means(word: str, code: str, name: str) -> bool:
    """Tell whether a word of a policy means the rule or violation of a code and a name.

    >>> means("GRAD*", "GRAD003", "dead_parameter"), means("dead_*", "GRAD003", "dead_parameter")
    (True, True)
    """
    return fnmatchcase(code, word) or fnmatchcase(name, word)
