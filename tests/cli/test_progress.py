import io
import sys

import pytest

from ckaudit.cli.output import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def watch(monkeypatch, stream, times, **options):
    """Tick once per time and return what was written."""
    monkeypatch.setattr(sys, "stderr", stream)
    clock = iter([0.0, *times])
    with progress("validating", clock=lambda: next(clock), **options) as tick:
        for done, _ in enumerate(times, start=1):
            tick(done, len(times))
    return stream.getvalue()


def test_a_short_work_shows_nothing(monkeypatch):
    assert watch(monkeypatch, Terminal(), [0.1, 0.2, 0.4]) == ""


def test_a_long_work_shows_few_lines_and_cleans_up(monkeypatch):
    written = watch(monkeypatch, Terminal(), [0.1, 0.6, 0.65, 0.75])
    assert written == "\r\x1b[Kvalidating 2 of 4\r\x1b[Kvalidating 4 of 4\r\x1b[K"


@pytest.mark.parametrize(("stream", "quiet"), [(io.StringIO(), False), (Terminal(), True)])
def test_nobody_watching_means_no_function(monkeypatch, stream, quiet):
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("validating", quiet=quiet) as tick:
        assert tick is None


def test_the_line_is_erased_when_the_work_breaks(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    clock = iter([0.0, 9.0])

    def work():
        with progress("validating", clock=lambda: next(clock)) as tick:
            tick(1, 2)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        work()
    assert stream.getvalue().endswith("\r\x1b[K")
