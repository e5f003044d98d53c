"""`[import.map]`: columns that a policy names are taken where a log has them, and `--save-map` writes them there."""

import tomllib

import pytest

from ckaudit.cli.run import run
from ckaudit.errors import UsageError
from ckaudit.policy.read import read_policy
from ckaudit.policy.save_columns import save_columns

TABLE = "iteration,train/foo,lr\n" + "".join(f"{step},{4 / step},0.1\n" for step in range(1, 41))


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(TABLE)
    return tmp_path


def notes_of(capfd):
    return " ".join(capfd.readouterr().out.split())


def test_a_column_that_is_named_once_is_kept_by_the_lines_of_the_hint(here, capfd):
    assert run(["triage", "log.csv", "--map", "loss=train/foo"]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[-3].startswith("hint: ckaudit.toml keeps what --map named")
    assert not (here / "ckaudit.toml").exists()
    (here / "ckaudit.toml").write_text("\n".join(line.strip() for line in lines[-2:]) + "\n")
    assert run(["triage", "log.csv"]) == 0
    assert "taken: step from iteration, learning_rate from lr, train_loss_raw from train/foo" in (notes := notes_of(capfd))
    assert "as import.map in ckaudit.toml says: loss from train/foo" in notes


def test_the_option_writes_them(here, capfd):
    assert run(["triage", "log.csv", "--map", "loss=train/foo", "--save-map"]) == 0
    assert "wrote ckaudit.toml: it keeps what --map named" in capfd.readouterr().err
    assert read_policy(here / "ckaudit.toml").columns == {"loss": "train/foo"}
    assert run(["triage", "log.csv", "--map", "loss=train/foo"]) == 0
    assert "hint" not in capfd.readouterr().err


def test_every_command_that_reads_a_log_follows_it(here, capfd):
    (here / "ckaudit.toml").write_text('[import.map]\nloss = "train/foo"\n')
    assert run(["metrics", "log.csv", "train_loss_raw", "-f", "csv"]) == 0
    assert "train_loss_raw" in capfd.readouterr().out
    assert run(["import", "log.csv", "-o", "run"]) == 0
    assert '"train_loss_raw":4.0' in (here / "run" / "scalars.jsonl").read_text()


def test_no_config_follows_none(here, capfd):
    (here / "ckaudit.toml").write_text('[import.map]\nloss = "train/foo"\n')
    assert run(["triage", "log.csv", "--no-config", "--allow-empty"]) == 0
    assert "train_loss_raw from" not in notes_of(capfd)


def test_a_log_without_the_column_is_read_all_the_same(here, capfd):
    (here / "ckaudit.toml").write_text('[import.map]\nloss = "train/foo"\nval_loss = "val/foo"\nstep = "iteration"\n')
    assert run(["triage", "log.csv"]) == 0
    assert "as import.map in ckaudit.toml says: loss from train/foo, step from iteration" in notes_of(capfd)
    (here / "other.csv").write_text("step,loss\n" + "".join(f"{step},{4 / step}\n" for step in range(1, 41)))
    assert run(["triage", "other.csv"]) == 0
    assert "import.map" not in notes_of(capfd)


def test_what_the_user_names_goes_before_it(here, capfd):
    (here / "ckaudit.toml").write_text('[import.map]\nloss = "lr"\n')
    assert run(["triage", "log.csv", "--map", "train_loss_raw=train/foo"]) == 0
    assert "train_loss_raw from train/foo" in notes_of(capfd)
    assert run(["triage", "log.csv", "--map", "loss=train/bar"]) == 2
    assert "train/bar" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[import]\nmaps = 1\n", "unknown key import.maps"),
        ("import = 1\n", "import is not a table"),
        ("[import.map]\nloss = 1\n", "import.map: expected a table of names"),
    ],
)
def test_what_is_wrong_in_it_is_said_with_its_place(here, text, reason):
    (here / "ckaudit.toml").write_text(text)
    with pytest.raises(UsageError, match=reason):
        read_policy(here / "ckaudit.toml")


BEFORE = [
    "",
    'fail_on = "sev2"  # mine\n',
    'fail_on = "sev2"',
    '[import.map]  # columns\nloss = "old"  # was\nlr = "rate"\n\n[thresholds.loss_spike]\nk = 8.0\n',
    '[import.map]\r\nlr = "rate"\r\n',
]


@pytest.mark.parametrize("text", BEFORE)
def test_everything_else_in_the_file_stays(here, text):
    path = here / "ckaudit.toml"
    path.write_bytes(text.encode())
    save_columns({"loss": 'train "nll"', "slice_val_loss/web": "\x1b[31mé"}, here)
    written = path.read_bytes().decode()
    before, after = tomllib.loads(text), tomllib.loads(written)
    named = {"loss": 'train "nll"', "slice_val_loss/web": "\x1b[31mé"}
    assert after == {**before, "import": {"map": {**before.get("import", {}).get("map", {}), **named}}}
    assert all(line.strip() in written for line in text.splitlines() if "old" not in line)


def test_a_table_of_a_pyproject_is_written_there(here):
    path = here / "pyproject.toml"
    path.write_text('[project]\nname = "x"\n\n[tool.ckaudit]\nfail_on = "sev2"\n')
    assert save_columns({"loss": "a"}, here) == path
    assert read_policy(path).columns == {"loss": "a"}
    assert tomllib.loads(path.read_text())["project"] == {"name": "x"}


@pytest.mark.parametrize("text", ['import.map = {loss = "a"}\n', "broken = [\n", 'import = "x"\n'])
def test_a_file_that_says_it_in_another_form_is_left_alone(here, text):
    (here / "ckaudit.toml").write_text(text)
    with pytest.raises(UsageError, match="cannot save --map") as caught:
        save_columns({"loss": "b"}, here)
    assert caught.value.hint == 'write it yourself: [import.map], loss = "b"'
    assert (here / "ckaudit.toml").read_text() == text
