"""The small inputs that searches begin with, and the ledger of what searches cost."""

from shutil import rmtree

from ckaudit.importers.tables.numbers import number
from tests.fuzz import corpus, ledger
from tests.fuzz.readers import broken_by, targets
from tests.loops import for_each


def test_a_folder_is_one_input_and_laid_out_again(tmp_path):
    files = {"a.txt": b"one\n", "b/c.json": b"", "b/d": bytes(range(256))}
    for name, data in files.items():
        path = tmp_path / "from" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    corpus.laid_out(corpus.as_input(tmp_path / "from"), tmp_path / "to")
    assert {
        str(path.relative_to(tmp_path / "to")): path.read_bytes() for path in (tmp_path / "to").rglob("*") if path.is_file()
    } == files


@for_each("name", ["../../out", "/etc/passwd", "a/../../out", "..", "", "a\0b", "x" * 400, "."])
def test_no_input_leaves_its_folder(tmp_path, name):
    (tmp_path / "home").mkdir(exist_ok=True)
    corpus.laid_out(corpus.SEPARATOR + name.encode() + b"\nx", tmp_path / "home" / "log")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["log"]
    rmtree(tmp_path / "home")


def test_the_smallest_inputs_that_reach_as_much_are_kept():
    def read(data):
        number(data.decode())

    assert corpus.smallest([b"1.5", b"1.5000000000", b"2", b"x" * 90, b"x"], read) in ([b"x"], [b"2", b"x"], [b"x", b"2"])


def test_what_is_kept_is_small_and_read():
    assert sum(path.stat().st_size for path in corpus.ARCHIVES.iterdir()) < 500_000
    assert {path.stem for path in corpus.ARCHIVES.iterdir()} <= set(targets())


@for_each("name", sorted(targets()))
def test_no_kept_input_breaks_its_reader(tmp_path, name):
    read = targets()[name]
    assert [how for data in corpus.kept(name) if (how := broken_by(read, data, tmp_path))] == []


def test_searches_add_up(tmp_path):
    path = tmp_path / "ledger.csv"
    for minutes in (1.5, 2.25):
        ledger.add(ledger.Searched("keyvalue", minutes, 100, 1), path)
    ledger.add(ledger.Searched("aim", 1.0, 10, 0), path)
    assert ledger.read(path) == {"aim": ledger.Searched("aim", 1.0, 10, 0), "keyvalue": ledger.Searched("keyvalue", 3.75, 200, 2)}
