import json
import subprocess
import sys

import pytest

from ckaudit.cli.run import run


def run_lab(capfd, *arguments):
    code = run(["lab", *arguments])
    return code, *capfd.readouterr()


def test_list_is_whole_as_json_and_needs_no_torch():
    script = "import sys; from ckaudit.cli.run import run; run(['lab', 'list', '-f', 'json']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert list(found) == ["faults", "healthy", "controls", "experiments"]
    assert "healthy_moe" in [each["name"] for each in found["healthy"]]
    fault = next(each for each in found["faults"] if each["name"] == "lr_too_high")
    assert (fault["truth"], fault["group"], fault["family"], fault["dev"]["onset"]) == (
        "learning_rate_too_high",
        "optimization",
        "gpt",
        0,
    )


@pytest.mark.parametrize("width", [60, 80, 100, 130])
def test_list_fits_a_screen_and_breaks_no_name_of_a_fault(capfd, monkeypatch, width):
    from ckaudit.lab.specs import faults

    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = run_lab(capfd, "list")
    assert code == 0
    assert max(map(len, out.splitlines())) <= width
    assert faults().keys() <= set(out.split())


def test_list_in_a_pipe_has_a_hundred_columns(capfd, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert 90 <= max(map(len, run_lab(capfd, "list")[1].splitlines())) <= 100


def test_list_shows_the_truth_and_the_numbers_of_what_a_pattern_names(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "130")
    code, out, err = run_lab(capfd, "list", "lr_*low,ROUTER_COLLAPSE,weights_zeroed*")
    assert (code, err) == (0, "")
    rows = [[cell.strip() for cell in line.split("  ") if cell] for line in out.splitlines()]
    assert ["lr_low", "learning_rate_too_low", "The peak learning rate is 0.02 times the healthy one."] in rows
    assert ["lr_too_low", "learning_rate_too_low", "The peak learning rate is 0.0001 times the healthy one."] in rows
    assert ["router_collapse", "router_collapse"] in [row[:2] for row in rows]
    assert "zero after the update of step 200." in " ".join(out.split())
    heads = ["model (1 fault)", "numerics (1 fault)", "optimization (2 faults)"]
    assert [line for line in out.splitlines() if line.endswith(")")] == heads


def test_list_has_headings_of_its_own_for_healthy_trainings_and_the_ids_of_experiments(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = run_lab(capfd, "list", "healthy*,exp-4")[1].splitlines()
    assert lines[0] == "healthy (6 trainings)"
    assert [line.split()[0] for line in lines[2:4]] == ["healthy", "healthy_moe"]
    assert lines[9] == "curriculum (1 experiment)"
    assert lines[11].split()[:2] == ["EXP-4", "zeroed_projection"]


def test_list_as_markdown_has_a_table_for_each_group(capfd):
    out = run_lab(capfd, "list", "lr_too_high,constant_lr", "-f", "markdown")[1]
    heads = [line for line in out.splitlines() if line.startswith("## ")]
    assert heads == ["## optimization (1 fault)", "## healthy, but looks ill (1 control)"]
    assert "| lr_too_high | learning_rate_too_high | The peak learning rate is 100 times the healthy one, and" in out


def test_no_title_of_a_fault_is_left_with_a_word_for_a_number():
    from ckaudit.lab.specs import faults
    from ckaudit.reports.lab.catalogue import in_numbers

    told = [in_numbers(each.title, each.dev) for each in faults().values()]
    assert not [title for title in told if "`" in title or "onset" in title or " 1 steps" in title or " 1 rows" in title]
    assert len(set(told)) == len(told)
