"""How the code is laid out, as far as neither the linter nor the type checker asks."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in (ROOT / "ckaudit").rglob("*.py")}
    assert not {str(path): lines for path, lines in lengths.items() if lines > 400}


def test_the_formatter_alone_decides_the_layout() -> None:
    switches = tuple(f"# fmt: {word}" for word in ("skip", "off", "on"))
    suppressed = [path for path in ROOT.glob("*/**/*.py") if any(switch in path.read_text() for switch in switches)]
    assert not [path for path in suppressed if ".venv" not in path.parts and path != Path(__file__)]
