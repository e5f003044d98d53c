"""Aim's repository as Aim wrote it, closed and cut off: every value; databases that are cut, changed or made to harm."""

import math
import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from msgspec import UNSET

from ckaudit.cli.run import run as command
from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.importers import ImportOptions, import_runs, import_source
from ckaudit.importers.importer import Source
from ckaudit.importers.trackers import rocksdb
from ckaudit.importers.trackers.crc32c import masked_checksums
from ckaudit.importers.trackers.rocksdb import open_database
from ckaudit.importers.trackers.rocksdb_table import BROKEN, MAX_UNPACKED, Table
from tests.loops import for_each

AIM = Path(__file__).parents[2] / "fixtures" / "trackers" / "aim"
SERIES = ".aim/seqs/chunks"
PUT, DELETION, RANGE_DELETION = 1, 0, 15


def noted(run, words):
    return any(words in note for note in run.notes)


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def expected(steps, start):
    """Return the training loss that was logged, by hand: NaN at 7, infinite at 8."""
    known = {step: 3 * math.exp(-step / 20) + 0.1 * start for step in steps}
    return known | {step: value for step, value in ((7, math.nan), (8, math.inf)) if step in known}


def copy_of(folder):
    return Path(shutil.copytree(AIM, folder / "project"))


def only(folder, pattern):
    (path,) = folder.glob(pattern)
    return path


def test_every_value_of_a_closed_run_is_imported():
    run = import_source(AIM, import_options=ImportOptions(run="first"))
    loss = expected(range(1, 25), 0) | expected(range(25, 41), 1)
    assert curve(run, "train_loss_raw") == pytest.approx(loss, nan_ok=True, rel=1e-15)
    assert curve(run, "val_loss") == pytest.approx({step: 2 * math.exp(-step / 20) for step in (10, 20, 30, 40)}, rel=1e-15)
    assert curve(run, "learning_rate") == dict.fromkeys(range(1, 41), 0.1)
    assert set(run.table.names) == {"train_loss_raw", "val_loss", "learning_rate", "time"}
    assert noted(run, "score")
    assert noted(run, "words hold no numbers")


def test_every_value_of_a_run_that_was_killed_is_in_its_log():
    run = import_source(AIM, import_options=ImportOptions(run="second"))
    assert curve(run, "train_loss_raw") == pytest.approx(expected(range(1, 21), 0), nan_ok=True, rel=1e-15)
    assert noted(run, "no end of the run")
    assert run.manifest.sessions[0].end is UNSET


@for_each("name", ["first", "second"])
def test_settings_are_those_that_were_written_last(name):
    manifest = import_source(AIM, import_options=ImportOptions(run=name)).manifest
    assert manifest.seed == 7
    assert manifest.config["hparams"] == {"lr": 0.1, "seed": 7, "model": {"layers": 2}}
    times = list(curve(import_source(AIM, import_options=ImportOptions(run=name)), "time").values())
    assert times == sorted(times)
    assert 1.7e9 < manifest.sessions[0].start <= times[0] < 1.9e9


def test_runs_are_listed_from_the_repository_from_the_folder_around_it_and_from_above(capsys, tmp_path):
    copy_of(tmp_path)
    for folder in (AIM, AIM / ".aim", tmp_path):
        assert command(["import", str(folder), "--list"]) == 0
        shown = capsys.readouterr().out
        assert "first (steps 1 to 40)" in shown
        assert "second (steps 1 to 20)" in shown


def test_a_series_can_be_named_by_the_user():
    run = import_source(AIM, import_options=ImportOptions(run="first", columns={"loss": "score"}))
    assert curve(run, "train_loss_raw") == {step: float(step) for step in range(1, 41)}
    with pytest.raises(UsageError, match="scor"):
        import_source(AIM, import_options=ImportOptions(run="first", columns={"loss": "scor"}))


def test_runs_without_the_database_of_names_are_called_by_their_hashes(tmp_path):
    folder = copy_of(tmp_path)
    (folder / ".aim" / "run_metadata.sqlite").unlink()
    assert {run.name for run in import_runs(folder)} == {path.name for path in folder.glob(f"{SERIES}/*")}


def test_of_a_log_that_is_cut_off_the_beginning_is_read(tmp_path):
    folder = copy_of(tmp_path)
    log = only(folder, f"{SERIES}/*/*.log")
    data = log.read_bytes()
    whole = curve(import_source(folder, import_options=ImportOptions(run="second")), "train_loss_raw")
    for size in range(len(data) - 1, len(data) // 2, -5003):
        log.write_bytes(data[:size])
        run = import_source(folder, import_options=ImportOptions(run="second"))
        part = curve(run, "train_loss_raw")
        assert len(part) < len(whole) or size > len(data) - 5003
        assert repr(part) == repr({step: whole[step] for step in part})
        assert noted(run, "ends in the middle of a record") or size % 32768 == 0


def test_of_a_table_with_a_changed_block_the_other_blocks_are_read(tmp_path):
    folder = copy_of(tmp_path)
    table = only(folder, f"{SERIES}/*/*.sst")
    data = bytearray(table.read_bytes())
    data[100] ^= 1
    table.write_bytes(data)
    run = import_source(folder, import_options=ImportOptions(run="first"))
    assert noted(run, "wrong checksum")
    assert len(run.table.steps)


def test_a_table_that_is_missing_is_named(tmp_path):
    folder = copy_of(tmp_path)
    table = only(folder, f"{SERIES}/*/*.sst")
    table.unlink()
    run = import_source(folder)
    assert run.name == "second"
    assert noted(run, f"{table.name}: missing in {table.parent.name}")


def test_a_run_whose_manifest_is_gone_costs_that_run(tmp_path):
    folder = copy_of(tmp_path)
    manifests = sorted(folder.glob(".aim/meta/chunks/*/MANIFEST-*"))
    manifests[0].write_bytes(b"")
    assert noted(import_source(folder), "manifest is missing, broken")
    manifests[1].unlink()
    with pytest.raises(UnreadableError, match="manifest is missing, broken") as caught:
        import_source(folder)
    assert "Copy it again" in caught.value.hint


def test_a_repository_without_a_run_says_so(tmp_path):
    (tmp_path / "project" / ".aim" / "meta" / "chunks").mkdir(parents=True)
    for folder in (tmp_path / "project", tmp_path / "project" / ".aim"):
        with pytest.raises(UnreadableError, match="is an Aim repository, but no run is in it"):
            import_source(folder)


@for_each("seed", range(40))
def test_changed_bytes_give_a_run_or_an_error_of_ours(tmp_path, seed):
    source, folder = random.Random(seed), copy_of(tmp_path / str(seed))
    for path in source.sample(sorted(folder.glob(".aim/*/chunks/*/*")), 3):
        data = bytearray(path.read_bytes())
        for _ in range(source.choice([1, 10, 300])):
            data[source.randrange(len(data))] = source.randrange(256)
        path.write_bytes(data[: source.choice([len(data), source.randrange(len(data))])])
    try:
        runs = import_runs(folder)
    except CkauditError:
        return
    assert all(len(run.table.steps) for run in runs)


def test_links_that_lead_out_of_a_repository_do_not_count(tmp_path):
    folder = tmp_path / "project" / ".aim" / "meta"
    folder.mkdir(parents=True)
    (folder / "chunks").symlink_to(AIM / ".aim" / "meta" / "chunks")
    with pytest.raises(UnreadableError):
        import_source(tmp_path / "project")


def test_logs_that_are_too_large_are_refused(monkeypatch):
    monkeypatch.setattr(rocksdb, "MAX_LOG_BYTES", 10_000)
    with pytest.raises(UsageError, match="has no run 'second'"):
        import_source(AIM, import_options=ImportOptions(run="second"))
    assert noted(import_source(AIM), "holds more series than are read")


# Databases that are written here, as the formats are described: logs alone, which hold whatever a program wrote last.
def varint(number):
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def text(data):
    return varint(len(data)) + data


def checksum(body):
    return struct.pack("<I", int(masked_checksums(np.frombuffer(body, np.uint8), np.array([0]), np.array([len(body)]))[0]))


def log(*records):
    """Return a log of records that each fit into what is left of a block."""
    out = bytearray()
    for record in records:
        body = bytes([1]) + record
        out += checksum(body) + struct.pack("<H", len(record)) + body
    return bytes(out)


def batch(number, *writes):
    return struct.pack("<QI", number, len(writes)) + b"".join(
        bytes([kind]) + b"".join(text(part) for part in parts) for kind, *parts in writes
    )


def database(folder, *batches):
    folder.mkdir(parents=True)
    (folder / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    (folder / "MANIFEST-000001").write_bytes(log(bytes([1]) + text(b"leveldb.BytewiseComparator") + bytes([2, 4])))
    (folder / "000004.log").write_bytes(log(*batches))
    return Source(folder)


def key(*path):
    return b"".join((b"\xfe" + struct.pack(">q", name) if isinstance(name, int) else name.encode()) + b"\xfe" for name in path)


def real(value):
    return b"\x03" + struct.pack("<d", value)


def test_the_newest_write_counts_and_a_deletion_hides_what_came_before_it(tmp_path):
    source = database(
        tmp_path / "one",
        batch(1, (PUT, b"a", b"1"), (PUT, b"b", b"2"), (PUT, b"c", b"3"), (PUT, b"d", b"4"), (PUT, b"e", b"5")),
        batch(6, (DELETION, b"a"), (PUT, b"b", b"20")),
        batch(8, (RANGE_DELETION, b"c", b"e"), (PUT, b"d", b"40")),
    )
    assert list(open_database(source, b"").entries()) == [(b"b", b"20"), (b"d", b"40"), (b"e", b"5")]
    assert list(open_database(source, b"d").entries()) == [(b"d", b"40")]


@for_each("seed", range(20))
def test_deletions_of_many_ranges_are_those_of_a_plain_dictionary(tmp_path, seed):
    source, plain, batches = random.Random(seed), {}, []
    for number in range(1, 200):
        first, last = sorted(source.choices([f"{place:02}".encode() for place in range(40)], k=2))
        if source.random() < 0.3:
            batches.append(batch(number, (RANGE_DELETION, first, last)))
            plain = {name: value for name, value in plain.items() if not first <= name < last}
        else:
            batches.append(batch(number, (PUT, first, b"%d" % number)))
            plain[first] = b"%d" % number
    assert list(open_database(database(tmp_path / str(seed), *batches), b"").entries()) == sorted(plain.items())


def test_the_older_layout_has_steps_in_place_of_hashes(tmp_path):
    run = tmp_path / ".aim" / "meta" / "chunks" / "abc"
    database(run, batch(1, (PUT, key("meta", "chunks", "abc", "contexts", -5, "subset"), b"\x04val")))
    writes = [(PUT, key("seqs", "chunks", "abc", -5, "loss", "val", step), real(1 / step)) for step in (1, 2, 3)]
    times = [(PUT, key("seqs", "chunks", "abc", -5, "loss", "time", step), real(1.8e9 + step)) for step in (1, 2, 3)]
    database(tmp_path / ".aim" / "seqs" / "chunks" / "abc", batch(1, *writes, *times))
    found = import_source(tmp_path)
    assert curve(found, "val_loss") == {1: 1.0, 2: 0.5, 3: 1 / 3}
    assert curve(found, "time") == {step: 1.8e9 + step for step in (1, 2, 3)}


@for_each(
    "context, name, shown",
    [
        ({"subset": "train"}, "loss", "train_loss_raw"),
        ({"subset": "val"}, "val_loss", "val_loss"),
        ({"fold": "books", "subset": "val"}, "loss", "slice_val_loss/books"),
        ({}, "lr", "learning_rate"),
    ],
)
def test_a_context_stands_before_a_name_that_does_not_say_it(tmp_path, context, name, shown):
    home = tmp_path / f"{name}{len(context)}{shown[:3]}" / ".aim"
    words = [(PUT, key("meta", "chunks", "abc", "contexts", 5, part), b"\x04" + word.encode()) for part, word in context.items()]
    database(home / "meta" / "chunks" / "abc", batch(1, *words))
    rows = [(PUT, key("seqs", "v2", "chunks", "abc", 5, name, column, 99), real(3.0)) for column in ("val", "step")]
    database(home / "seqs" / "chunks" / "abc", batch(1, *rows))
    assert curve(import_source(home), shown) == {3: 3.0}


def test_series_whose_contexts_are_lost_stay_apart(tmp_path):
    database(tmp_path / ".aim" / "meta" / "chunks" / "abc", batch(1))
    writes = [
        (PUT, key("seqs", "v2", "chunks", "abc", context, "loss", column, step), real(value))
        for context, loss in ((1, 4.0), (2, 8.0))
        for step in range(1, 3 + context)
        for column, value in (("val", loss), ("step", float(step)))
    ]
    database(tmp_path / ".aim" / "seqs" / "chunks" / "abc", batch(1, *writes))
    assert set(curve(import_source(tmp_path), "train_loss_raw").values()) in ({4.0}, {8.0})


def table(folder, blocks, places=None, end=None):
    """Return the path of a table with packed blocks of the keys that it is given, and what its index and its end say of them."""
    codec, out, own = pytest.importorskip("pyarrow").Codec("snappy"), bytearray(), []

    def write(plain, packed=None):
        body = (codec.compress(plain, asbytes=True) if packed is None else packed) + bytes([1])
        out.extend(
            body + struct.pack("<I", int(masked_checksums(np.frombuffer(body, np.uint8), *np.array([[0], [len(body)]]))[0]))
        )
        return varint(len(out) - len(body) - 4) + varint(len(body) - 1)

    for names in blocks:
        if isinstance(names, bytes):
            own.append((b"z", write(b"", names)))
            continue
        entries = [bytes([0, len(name) + 8, 1]) + name + struct.pack("<Q", 1 << 8 | PUT) + b"v" for name in names]
        own.append((names[-1], write(b"".join(entries) + struct.pack("<II", 0, 1))))
    index = b"".join(bytes([0, len(last)]) + last + place for last, place in places or own)
    others, index = write(struct.pack("<II", 0, 1)), write(index + struct.pack("<II", 0, 1))
    out += end or (bytes([1]) + (others + index).ljust(40, b"\0") + struct.pack("<IQ", 5, 0x88E241B785F4CFF7))
    path = folder / "000001.sst"
    path.write_bytes(out)
    return path


def test_of_a_table_only_blocks_with_keys_of_a_beginning_are_read(tmp_path):
    path = table(tmp_path, [[b"a1", b"a2"], [b"a3", b"b1"], [b"b2"], [b"b3", b"c1"], [b"c2"]])
    assert [key for key, _, _ in Table(path, b"b").versions()] == [b"a3", b"b1", b"b2", b"b3", b"c1"]
    assert [key for key, _, _ in Table(path, b"").versions()] == [b"a1", b"a2", b"a3", b"b1", b"b2", b"b3", b"c1", b"c2"]


@for_each("packed", [varint(MAX_UNPACKED + 1) + b"\xfc", varint(10) + bytes([0, 97, 9, 5]), varint(4) + b"\0a", b"\xff" * 20])
def test_a_block_that_is_broken_or_too_large_is_left_out(tmp_path, packed):
    found = Table(table(tmp_path, [[b"a"], packed]), b"")
    assert [key for key, _, _ in found.versions()] == [b"a"]
    assert found.broken == 1


@for_each(
    "places, end",
    [
        ([(b"a", varint(0) + varint(8)), (b"b", varint(0) + varint(8))], None),  # one block, a thousand times
        ([(b"a", varint(0) + varint(2**40))], None),
        (None, bytes([1, *[0xFF] * 40]) + struct.pack("<IQ", 5, 0x88E241B785F4CFF7)),
        (None, bytes(41) + struct.pack("<IQ", 9, 0x88E241B785F4CFF7)),
        (None, bytes(53)),
    ],
)
def test_a_table_whose_index_or_end_is_wrong_is_refused(tmp_path, places, end):
    path = table(tmp_path, [[b"a"]], places, end)
    with pytest.raises(BROKEN):
        list(Table(path, b"").places)
    folder = copy_of(tmp_path / str(len(list(tmp_path.iterdir()))))
    shutil.copy(path, only(folder, f"{SERIES}/*/*.sst"))
    run = import_source(folder)
    assert run.name == "second"
    assert noted(run, "is broken, or of another version")


def test_a_table_that_goes_away_while_it_is_read_is_left_out(tmp_path):
    found = Table(table(tmp_path, [[b"a"], [b"b"]]), b"")
    assert len(found.places) == 2
    (tmp_path / "000001.sst").unlink()
    assert not list(found.versions())
    assert found.broken == 2
