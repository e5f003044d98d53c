"""The least that reading from S3 costs beside reading from the disk: nothing is signed, listed, checked, kept or written down.

    python benchmarks/floors/storage_floor.py [--rounds 9] [--files 400] [--write]

Objects come over one line a process that stays open, by addresses signed beforehand, and eight are asked for before the first
is taken; there is no thread. "Decoding alone" decodes checkpoints into the types of the command. "The command" is ckaudit on
files of the disk; in S3 it reads the disk, too, while a process beside it gets the objects and drops them (in a fleet each
process does that first), which is more than it can ever reach at this server, whatever its client. `--write` puts the table
into benchmarks/README.md.
"""

import argparse
import gc
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1]), str(HERE.parents[1] / "fixtures")]

AHEAD = 8
PROCESSES = 2
TASKS = {"validate": "bench/large", "triage": "bench/large", "fleet": "fleet"}
"""Commands, and the folder of the store that each reads."""
WAYS = {"decode": "decoding alone", "command": "the command"}


def objects(port: int, paths: list[str]) -> Iterator[bytes]:
    """Yield objects in order."""
    with socket.create_connection(("127.0.0.1", port)) as line, line.makefile("rb", buffering=2**18) as stream:
        for number in range(len(paths) + AHEAD):
            if number < len(paths):
                line.sendall(f"GET {paths[number]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            if number >= AHEAD:
                yield answer(stream)


def answer(stream: Any) -> bytes:
    """Return the body of the next answer."""
    head, length = stream.readline(), -1
    assert head.startswith(b"HTTP/1.1 200"), head
    while (head := stream.readline()) != b"\r\n":
        if head[:15].lower() == b"content-length:":
            length = int(head[15:])
    body: bytes = stream.read(length)
    return body


def sign(store: Path, endpoint: str) -> None:
    """Write beside each folder of a run the signed addresses of its objects."""
    from botocore.config import Config
    from botocore.session import Session

    config = Config(s3={"addressing_style": "path"}, signature_version="s3v4")
    client = Session().create_client("s3", endpoint_url=endpoint, config=config)
    for folder in {file.parent for file in store.rglob("*") if file.is_file()}:
        paths = []
        for file in files_of(folder):
            bucket, *names = file.relative_to(store).parts
            wanted = {"Bucket": bucket, "Key": "/".join(names)}
            paths.append(client.generate_presigned_url("get_object", Params=wanted, ExpiresIn=86400).removeprefix(endpoint))
        signed(store, folder).write_text("\n".join(paths), "ascii")


def signed(store: Path, folder: Path) -> Path:
    """Return the file that has the signed addresses of a folder's objects."""
    return store.parent / f"signed-{'-'.join(folder.relative_to(store).parts)}"


def files_of(folder: Path) -> list[Path]:
    """Return the files of a run, checkpoints first: the others are fetched as well, and dropped."""
    return sorted(folder.iterdir(), key=lambda file: (not file.name.startswith("analysis"), file.name))


def decode(task: str, folder: Path, documents: Iterator[bytes]) -> None:
    """Decode checkpoints into the types of the command."""
    import msgspec

    from ckaudit.audit.engine import triage_reads
    from ckaudit.contract.schema.checkpoint import Checkpoint
    from ckaudit.run.column_builder import decoder

    read = msgspec.json.Decoder(Checkpoint) if task == "validate" else decoder(frozenset(triage_reads()))
    for file, data in zip(files_of(folder), documents, strict=True):
        if file.name.startswith("analysis"):
            read.decode(data)


def audit(task: str, folder: Path) -> None:
    """Do what the command does with a run of the disk."""
    if task == "fleet":
        from ckaudit.fleet.audit_run import audit_run
        from ckaudit.fleet.source import RunSource

        assert audit_run(RunSource(name=folder.name, path=str(folder)))[0].status == "audited"
        return
    from ckaudit.cli.run import run

    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing):
        run([task, str(folder)])


def drop(port: int, paths: list[str]) -> None:
    """Get objects, and nothing more."""
    for _ in objects(port, paths):
        pass


def read(task: str, way: str, store: Path, folder: Path, port: int) -> None:
    """Read one run; port 0: from the disk."""
    gc.disable()
    paths = signed(store, folder).read_text("ascii").split("\n")
    if way == "decode":
        decode(task, folder, objects(port, paths) if port else (file.read_bytes() for file in files_of(folder)))
        return
    if not port:
        audit(task, folder)
    elif task == "fleet":  # no processor is free beside the two that audit
        drop(port, paths)
        audit(task, folder)
    else:
        beside = get_context("fork").Process(target=drop, args=(port, paths))
        beside.start()
        audit(task, folder)
        beside.join()


def program(task: str, way: str, place: str, port: str) -> None:
    """Read a run, or the runs of a fleet by as many processes as the command takes."""
    store = Path(place)
    if task != "fleet":
        read(task, way, store, store / TASKS[task], int(port))
        return
    from ckaudit.fleet.engines.preload import forget_garbage

    forget_garbage()
    runs = sorted((store / TASKS[task]).iterdir())
    with get_context("fork").Pool(PROCESSES) as pool:
        pool.starmap(read, [(task, way, store, run, int(port)) for run in runs], chunksize=1)


def row(task: str, way: str, store: Path, port: int, rounds: int) -> str:
    """Measure both places in turn, and return their row."""
    from pairs import measure
    from storage import SERVERS

    server, command = SERVERS[0].pid, [sys.executable, __file__, "--read", task, way, str(store)]
    disk, there, served = [], [], []
    for _ in range(rounds + 1):
        disk.append(measure([*command, "0"]))
        busy = processor(server)
        there.append(measure([*command, str(port)]))
        served.append(processor(server) - busy)
    disk, there, served = disk[1:], there[1:], served[1:]  # the first round fills caches
    share = median(here.wall / far.wall for here, far in zip(disk, there, strict=True))
    walls = [median(each.wall for each in some) for some in (disk, there)]
    seconds = [median(each.cpu for each in some) for some in (disk, there)]
    cells = " | ".join(f"{number:.2f}" for number in (*walls, *seconds, median(served), share))
    return f"| {task}: {WAYS[way]} | {cells} |"


def processor(pid: int) -> float:
    """Return the seconds of the processor that a process has taken."""
    facts = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure each task in each way, and print the table."""
    if sys.argv[1:2] == ["--read"]:
        program(*sys.argv[2:])
        return
    from pairs import machine, write_table
    from storage import served

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, served(Path(temporary), wanted.files) as port:
        store = Path(temporary) / "store"
        sign(store, f"http://127.0.0.1:{port}")
        rows = [row(task, way, store, port, wanted.rounds) for way in WAYS for task in TASKS]
    head = "| floor | disk, s | S3, s | processor, disk, s | processor, S3, s | server's, s | of the disk's throughput |"
    table = "\n".join([f"{machine()}; medians of {wanted.rounds} rounds.", "", head, "|---" * 7 + "|", *rows])
    print(table)
    if wanted.write:
        write_table("floors/storage_floor", table)


if __name__ == "__main__":
    main()
