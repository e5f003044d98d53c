"""The page on object storage: its commands are run against a server, and what it says of limits is what the code has."""

import re
import shlex
from pathlib import Path

from ckaudit.cli.run import run
from ckaudit.remote import cache, fetch, filesystem, mirror
from ckaudit.remote.location import EXTRA_OF
from tests.object_storage import Bucket, s3, s3_server

__all__ = ["s3", "s3_server"]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/object-storage.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if "ckaudit " in line
]


def test_commands_of_the_page_do_what_they_say(s3: Bucket, tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    runs = {"nano": "lr_doubled", "base": "base", "good-1": "replica", "good-2": "replica_2"}
    for name, pair in runs.items():
        s3.put(f"runs/{name}", ROOT / "fixtures/pairs" / pair)
    log = "".join(f"{step},{3 - 0.02 * step}\n" for step in range(1, 101))
    web = s3.put("logs/train.csv", b"step,train/nll\n" + log.encode())
    assert len(COMMANDS) >= 6
    for line in (line for line in COMMANDS if line.startswith("ckaudit ")):
        words = shlex.split(line.replace("s3://bucket", f"s3://{s3.name}").replace("https://example.org/logs/train.csv", web))
        assert run(words[1:]) in (0, 1), (line, capfd.readouterr().err)
    assert (tmp_path / "nano.html").is_file()


def test_the_page_says_the_limits_that_there_are() -> None:
    text = " ".join(PAGE.split())
    assert f"{filesystem.CONNECT_SECONDS:g} seconds for a connection, {filesystem.ANSWER_SECONDS:g} for an answer" in text
    assert filesystem.ATTEMPTS == 4
    assert "four attempts" in text
    assert f"holds {cache.DEFAULT_LIMIT:g} GB at most (`{cache.LIMIT}`)" in text
    assert f"more than {mirror.MAX_OBJECTS:,} objects" in text
    assert mirror.ROUNDS == 3
    assert f"pieces of {fetch.PIECE // 2**20} MB" in text
    assert fetch.AT_ONCE == 16
    assert f"`{cache.FOLDER}` names another folder" in text
    assert {f"`{kind}://" for kind in EXTRA_OF if kind not in ("http", "memory")} <= set(re.findall(r"`\w+://", text))
