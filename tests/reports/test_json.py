import json

import msgspec
import pytest

from ckaudit.contract.schema.report import Report
from ckaudit.reports import render
from ckaudit.reports.json import dumps
from tests.reports.sample import SAMPLES


@pytest.mark.parametrize("name", ["ill", "clean", "empty"])
def test_a_report_reads_back_equal(name):
    report = SAMPLES[name]()
    assert msgspec.json.decode(render(report, "json"), type=Report) == report


def test_controls_and_direction_marks_read_back_but_never_reach_the_terminal():
    text = dumps({"a\u202e": "\x1b[31m\x9b\x7f\u2028"})
    assert text.isascii()
    assert json.loads(text) == {"a\u202e": "\x1b[31m\x9b\x7f\u2028"}


def test_half_a_surrogate_pair_becomes_visible_text_that_every_reader_takes():
    text = dumps({"\udc80": ["a\ud800"]})
    assert msgspec.json.decode(text) == {"\\udc80": ["a\\ud800"]}
