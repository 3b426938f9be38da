"""ZooKeeper, asked by a client with its own log.

Truth: the client's own times, names and errors.
"""

from benchmarks.real_systems.cache_driver import CacheByDriver
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import scenario

PORT = 2181
JAR = "/usr/share/java/zookeeper.jar"


@scenario
class ZooKeeper(CacheByDriver):
    """Several requests at once, errors, pings; a watch that is set off while an answer is due."""

    name = "zookeeper"
    words = "ZooKeeper; a client's own times of 569 operations: 11 at once, errors, pings, 40 notices of a watch"
    kind = "zookeeper"
    port = PORT
    needs = (("java", "default-jre-headless"), (JAR, "zookeeper"))

    @property
    def client(self) -> tuple[str, ...]:
        return ("zookeeper_client",)

    def start(self, lab: Lab) -> None:
        data = lab.folder / "zookeeper"
        data.mkdir()
        settings = f"tickTime=2000\ndataDir={data}\nclientPort={PORT}\nadmin.enableServer=false\n"
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        argv = ("-Xmx128m", "-Djava.net.preferIPv4Stack=true", "-cp", f"/etc/zookeeper/conf:{JAR}", main)
        lab.start("cache", "java", *argv, str(lab.file("zoo.cfg", settings)), port=PORT)
