"""Formulas of docstrings as text: converts each TeX formula into one readable line."""
# ruff: noqa: RUF001  mathematical letters are intended

import re
import unicodedata
from collections import deque

Tokens = deque[str]
TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\s+|.", re.DOTALL)

# The text for a command on a screen with Unicode, and on one without.
SYMBOLS = {
    "alpha": ("α", "alpha"),
    "beta": ("β", "beta"),
    "gamma": ("γ", "gamma"),
    "kappa": ("κ", "kappa"),
    "phi": ("φ", "phi"),
    "pi": ("π", "pi"),
    "chi": ("χ", "chi"),
    "omega": ("ω", "omega"),
    "Omega": ("Ω", "Omega"),
    "Lambda": ("Λ", "Lambda"),
    "leq": ("≤", "<="),
    "geq": ("≥", ">="),
    "neq": ("≠", "!="),
    "sim": ("~", "~"),
    "propto": ("∝", "~"),
    "ll": ("≪", "<<"),
    "gg": ("≫", ">>"),
    "notin": ("∉", "not in"),
    "to": ("→", "->"),
    "cup": ("∪", "or"),
    "cap": ("∩", "and"),
    "ldots": ("…", "..."),
    "cdots": ("…", "..."),
    "odot": ("⊙", "*"),
    "ast": ("*", "*"),
    "star": ("*", "*"),
    "delta": ("δ", "delta"),
    "epsilon": ("ε", "epsilon"),
    "eta": ("η", "eta"),
    "lambda": ("λ", "lambda"),
    "mu": ("μ", "mu"),
    "rho": ("ρ", "rho"),
    "sigma": ("σ", "sigma"),
    "tau": ("τ", "tau"),
    "theta": ("θ", "theta"),
    "Sigma": ("Σ", "Sigma"),
    "ell": ("ℓ", "l"),
    "infty": ("∞", "inf"),
    "le": ("≤", "<="),
    "ge": ("≥", ">="),
    "ne": ("≠", "!="),
    "approx": ("≈", "~="),
    "equiv": ("≡", "=="),
    "in": ("∈", "in"),
    "pm": ("±", "+-"),
    "cdot": ("·", "*"),
    "times": ("×", "x"),
    "mid": ("|", "|"),
    "dots": ("…", "..."),
    "top": ("ᵀ", "T"),
    "sum": ("Σ", "sum"),
    "prod": ("Π", "prod"),
    "{": ("{", "{"),
    "}": ("}", "}"),
    "|": ("‖", "||"),
    "%": ("%", "%"),
}
# These come before their operand without a space.
PREFIXES = {"Delta": ("Δ", "d"), "nabla": ("∇", "grad "), "neg": ("¬", "not "), "lVert": ("‖", "||"), "partial": ("∂", "d")}
PREFIXES |= {"langle": ("⟨", "<"), "lfloor": ("⌊", "floor("), "lceil": ("⌈", "ceil(")}
# And these after it.
SUFFIXES = {"\\rVert": ("‖", "||"), "\\rangle": ("⟩", ">"), "\\rfloor": ("⌋", ")"), "\\rceil": ("⌉", ")")}
WORDS = {"log", "ln", "exp", "max", "min", "Pr", "median", "arg"}
SPACES = {",": " ", ";": " ", " ": " ", ":": " ", "!": "", "quad": "\n", "qquad": "\n", "textstyle": ""}
SPACES |= dict.fromkeys(("left", "right", "big", "Big", "bigl", "bigr", "Bigl", "Bigr"), "")
NAMED = {"text", "mathrm", "operatorname", "mathbb", "mathbf"}

LOWERED = dict(zip("0123456789+-=aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))
RAISED = dict(zip("0123456789+-=nitkmT", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼ⁿⁱᵗᵏᵐᵀ", strict=True))
LOGARITHM = re.compile(r"\b(log|ln)\s*$")
READABLE_WHEN_SMALL = re.compile(r"[a-zA-Z]|-?\d+|[a-z][+-]\d+")  # words in small characters are hard to read


class UnknownCommandError(Exception):
    """A command that cannot be written in plain text."""


def readable(tex: str, *, unicode: bool = True) -> str:
    r"""Return a formula as text, with a line for each part that TeX separates with `\quad`.

    A formula with an unknown command is returned unchanged: the source is better than half a formula.

    Args:
        tex: The formula, without dollar signs.
        unicode: Whether Greek letters, mathematical signs and small digits may be used.

    >>> readable(r"L = -\tfrac1N \sum_i \log p(y_i \mid x_{<i})")
    'L = -1/N Σᵢ log p(yᵢ | x_(<i))'
    >>> readable(r"\sqrt{\mu^2 + \sigma^2} \le 10^{-3}", unicode=False)
    'sqrt(mu^2 + sigma^2) <= 10^-3'
    """
    try:
        text = _until(deque(TOKEN.findall(tex)), None, unicode=unicode)
    except (UnknownCommandError, IndexError):
        return " ".join(tex.split())
    lines = (" ".join(line.split()).strip().rstrip(",") for line in text.split("\n"))
    return re.sub(r"(?<=[\[(]) | (?=[\])])|(?<=exp|max|min) (?=\()", "", "\n".join(line for line in lines if line))


def _until(tokens: Tokens, end: str | None, *, unicode: bool) -> str:
    """Translate up to `end`, or to the last token."""
    text = ""
    while tokens:
        piece = tokens.popleft()
        if piece == end:
            return text
        if piece in SUFFIXES:
            text = text.rstrip() + SUFFIXES[piece][not unicode]
        elif piece in ("_", "^"):
            text = text.rstrip() + _script(piece, _argument(tokens, unicode=unicode), unicode=unicode)
        elif piece in ("\\sum", "\\prod"):
            text += _with_limits(piece[1:], tokens, unicode=unicode)
        else:
            part = _one(piece, tokens, unicode=unicode)
            text += f"({part})" if "/" in part and LOGARITHM.search(text) else part
    if end is not None:
        raise UnknownCommandError(end)
    return text


def _argument(tokens: Tokens, *, unicode: bool) -> str:
    """Translate the argument of a command: a group, or one token."""
    while tokens[0].isspace():
        tokens.popleft()
    piece = tokens.popleft()
    return _until(tokens, "}", unicode=unicode).strip() if piece == "{" else _one(piece, tokens, unicode=unicode).strip()


def _one(piece: str, tokens: Tokens, *, unicode: bool) -> str:
    """Translate one token, with its arguments."""
    if piece == "{":
        return _until(tokens, "}", unicode=unicode)
    if piece.startswith("\\"):
        return _command(piece[1:], tokens, unicode=unicode)
    return " " if piece.isspace() else piece


def _command(name: str, tokens: Tokens, *, unicode: bool) -> str:
    """Translate a command, with its arguments."""
    if name in NAMED:
        return _verbatim(tokens)
    if name in ("frac", "tfrac"):
        return _divided(_argument(tokens, unicode=unicode), _argument(tokens, unicode=unicode))
    if name == "sqrt":
        inside = _argument(tokens, unicode=unicode)
        return f"√{_bound(inside)}" if unicode else f"sqrt({inside})"
    if name == "bar":
        inside = _argument(tokens, unicode=unicode)
        return unicodedata.normalize("NFC", inside + "\N{COMBINING MACRON}") if unicode else f"mean_{inside}"
    if name in PREFIXES:
        _skip_spaces(tokens)
        return PREFIXES[name][not unicode]
    return _sign(name, tokens, unicode=unicode)


def _sign(name: str, tokens: Tokens, *, unicode: bool) -> str:
    """Translate a command without arguments."""
    if name in WORDS:
        return name + _gap(tokens)
    if name in SPACES:
        return SPACES[name]
    if name not in SYMBOLS:
        raise UnknownCommandError(name)
    return SYMBOLS[name][not unicode]


def _verbatim(tokens: Tokens) -> str:
    """Return a group of plain words unchanged."""
    _skip_spaces(tokens)
    if tokens.popleft() != "{":
        raise UnknownCommandError("{")
    words = ""
    while (piece := tokens.popleft()) != "}":
        words += " " if piece.isspace() else piece
    return words + _gap(tokens)


def _gap(tokens: Tokens) -> str:
    """Return the space that a word needs before a letter or digit."""
    return " " if tokens and (tokens[0].isalnum() or tokens[0].startswith("\\")) and tokens[0] != "\\," else ""


def _skip_spaces(tokens: Tokens) -> None:
    while tokens and tokens[0].isspace():
        tokens.popleft()


def _with_limits(name: str, tokens: Tokens, *, unicode: bool) -> str:
    """Translate a sum; if it has two limits, the text gives both."""
    limits: dict[str, str] = {}
    while tokens and tokens[0] in ("_", "^"):
        mark = tokens.popleft()
        limits[mark] = _argument(tokens, unicode=unicode)
    sign = SYMBOLS[name][not unicode]
    if "^" in limits:
        return f"{sign}_({limits.get('_', '')}..{limits['^']})" + _gap(tokens)
    return sign + (_script("_", limits["_"], unicode=unicode) if limits else "") + _gap(tokens)


def _script(mark: str, text: str, *, unicode: bool) -> str:
    """Return an index or a power: in small characters if they are readable, else behind its mark."""
    if mark == "^" and text in ("*", "'", "ᵀ"):
        return text
    small = LOWERED if mark == "_" else RAISED
    if unicode and READABLE_WHEN_SMALL.fullmatch(text) and all(letter in small for letter in text):
        return "".join(small[letter] for letter in text)
    plain = r"[\w']+" if mark == "_" else r"-?\d+|\w"
    return mark + (text if re.fullmatch(plain, text) else f"({text})")


def _divided(above: str, below: str) -> str:
    """Return a fraction on one line."""
    plain = re.compile(r"[^\s/]*")
    if plain.fullmatch(above) and plain.fullmatch(below):
        return f"{above}/{below}"
    return f"{_bound(above)} / {_bound(below)}"


def _bound(text: str) -> str:
    """Return `text` in brackets, unless it is unambiguous without them."""
    together = re.fullmatch(r"[^\s/]*|[^\s()]*\([^()]*\)|\|[^|]*\||‖[^‖]*‖|⟨[^⟩]*⟩|<[^>]*>", text)
    return text if together else f"({text})"
