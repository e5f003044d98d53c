"""How long a run in object storage takes, against the same run on the disk: whole processes, side by side.

    python benchmarks/storage.py [--rounds 5] [--files 1000] [--write]

The server is a separate process on the same processors. A cold read begins with an empty cache.
`--write` puts the table into benchmarks/README.md.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "fixtures")]

from checkpoints.honest import key_heavy  # noqa: E402  the generator stands beside the fixtures
from fleet import write_fleet  # noqa: E402
from pairs import Case, run  # noqa: E402
from validate import write_run  # noqa: E402

from tests.object_storage import KEY, SECRET, environment, free_port  # noqa: E402  the server of the tests

S3FS_ALONE = "import sys; sys.modules['obstore'] = None; from ckaudit.__main__ import main; sys.argv[0] = 'ckaudit'; main()"
CACHES = "CKAUDIT_BENCHMARK_CACHES"
COLD = ["sh", "-c", f'CKAUDIT_CACHE=$(mktemp -d "${CACHES}/cold.XXXXXX") exec "$@"', "sh"]
"""Starts a command with an empty cache."""
NEW = ["sh", "-c", f'"$@" --output $(mktemp -d "${CACHES}/fleet.XXXXXX") --format json; [ $? -le 1 ]', "sh"]
"""Starts an audit of a fleet without earlier results; some of its runs are ill."""
FLEET = 40

SERVERS: list[subprocess.Popen[bytes]] = []


def prepare(root: Path, files: int) -> None:
    """Write the runs into the server's folder."""
    (root / "store/bench").mkdir(parents=True)
    write_run(root / "store/bench/large", key_heavy, files, lambda data: data)
    write_run(root / "store/bench/small", key_heavy, 160, lambda data: data)
    write_fleet(root / "store/fleet", FLEET, 160)


def cases(root: Path, files: int) -> list[Case]:
    """Return every comparison; commands find the server by the environment."""
    port = free_port()
    start_server(root / "store", port)
    os.environ |= environment(f"http://127.0.0.1:{port}")
    os.environ["CKAUDIT_CACHE"] = str(root / "warm")
    os.environ[CACHES] = str(root)
    ours = [str(Path(sys.executable).with_name("ckaudit"))]
    return [*cases_of_fleet(root, ours), *cases_of_runs(root, ours, files)]


def cases_of_fleet(root: Path, ours: list[str]) -> list[Case]:
    """Return the comparisons of a fleet in object storage with the same fleet on a disk."""
    return [
        Case(
            f"fleet of {FLEET} runs of 160 files of 50 KB in S3, {how}",
            [*start, *NEW, *ours, "fleet", "s3://fleet/*"],
            "the same on the disk",
            [*NEW, *ours, "fleet", str(root / "store/fleet/*")],
            "1.43",
        )
        for how, start in (("cold", COLD), ("warm", []))
    ]


def cases_of_runs(root: Path, ours: list[str], files: int) -> list[Case]:
    """Return the comparisons of single runs in object storage with the same runs on a disk."""
    return [
        Case(
            f"{command} {count:,} files of 200 KB in S3, {how}",
            [*start, *program, command, f"s3://bench/{name}"],
            "the same on the disk",
            [*ours, command, str(root / "store/bench" / name)],
            aim,
        )
        for command, name, count in (("validate", "small", 160), ("validate", "large", files), ("triage", "large", files))
        for how, start, program, aim in (
            ("cold", COLD, ours, "1.43"),
            ("cold, by s3fs alone", COLD, [sys.executable, "-c", S3FS_ALONE], "-"),
            ("warm", [], ours, "1.43"),
        )
    ]


def start_server(folder: Path, port: int) -> None:
    """Start the server; it ends with this process."""
    program = [str(Path(sys.executable).with_name("rclone")), "serve", "s3", "--addr", f"127.0.0.1:{port}"]
    process = subprocess.Popen([*program, "--auth-key", f"{KEY},{SECRET}", "--log-level", "ERROR", str(folder)])
    SERVERS.append(process)
    for _ in range(100):
        time.sleep(0.1)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return


def stop_servers() -> None:
    """Stop the servers that were started."""
    for server in SERVERS:
        server.terminate()


@contextmanager
def served(root: Path, files: int) -> Iterator[int]:
    """Write the runs, serve them while the block runs, name the server to this process's client, and yield its port."""
    port = free_port()
    prepare(root, files)
    try:
        start_server(root / "store", port)
        os.environ |= environment(f"http://127.0.0.1:{port}")
        yield port
    finally:
        stop_servers()


if __name__ == "__main__":
    try:
        run("storage", prepare, cases)
    finally:
        stop_servers()
