"""Which clients are run, how each is obtained, and what each can do.

A client is one release of one library. `scenarios` says what its program runs, `not_run` what its
library offers besides, so that a cell of the published table is empty because the client has no
such thing and for no other reason; what the broker does not do yet stands in `PENDING` with the
issue that will bring it. Client
programs and their command line are described in tests/compat/clients/README.md.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import toolchains

PROGRAMS = Path(__file__).parent / "clients"
ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OLD_CODECS = ("none", "gzip", "snappy", "lz4")
EVERYTHING = frozenset({"produce", "consume", "member", "times", "admin", "transact"})
NO_TRANSACTIONS = EVERYTHING - {"transact"}
PLAIN = NO_TRANSACTIONS - {"admin"}
NO_LOOKUP = PLAIN - {"times"}

CORE = frozenset(
    {
        "kcat 1.7",
        "confluent-kafka newest",
        "confluent-kafka 1.9.2",
        "kafka-python 3",
        "kafka-python 2.0.2",
        "aiokafka newest",
        "kafkajs 2.2.4",
        "Java 4.3.1",
        "Java 3.9.1",
    }
)
"""The clients that most users have: `make compat-core` runs these alone, as CI does."""

PENDING: dict[tuple[str, str], str] = {}
"""(client name or "*", scenario) -> why it is expected to fail, with the issue that brings it."""

_SILENT = "org.slf4j:slf4j-nop:1.7.36"
_TOKENS = ("org.bitbucket.b_c:jose4j:0.9.6", "com.fasterxml.jackson.core:jackson-databind:2.21.2")
"""What Java's client needs to get tokens from an identity provider."""

_JAXB = "javax.xml.bind:jaxb-api:2.3.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One release of one client library.

    `command` resolves what the client needs and returns the start of its command line.
    `not_run` are scenarios and codecs that its library has and its program does not try.
    `timestamps` and `headers` tell whether its program can set them; `reads_timestamps` whether
    consumed records show theirs. An `optional` client needs an interpreter or compiler that few
    machines have: where that is missing its cases are skipped instead of failed.
    """

    name: str
    language: str
    command: Callable[[], list[str]]
    scenarios: frozenset[str] = EVERYTHING
    codecs: tuple[str, ...] = ALL_CODECS
    not_run: tuple[str, ...] = ()
    timestamps: bool = True
    headers: bool = True
    reads_timestamps: bool = True
    aborts: bool = True
    optional: bool = False
    environment: Callable[[], dict[str, str]] = field(default=dict)


def _python(program: str, version: str = "", *requirements: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        python = sys.executable
        if version:
            python = str(toolchains.python_with(version, *requirements))
        return [python, str(PROGRAMS / program)]

    return command


def _kcat() -> list[str]:
    toolchains.debian_program("kcat", "kcat")
    return [sys.executable, str(PROGRAMS / "kcat_client.py")]


def _node(program: str) -> Callable[[], list[str]]:
    cure = "install Node.js 20 or newer"
    return lambda: [toolchains.find_program("node", cure), str(PROGRAMS / program)]


def _node_path(*packages: str) -> Callable[[], dict[str, str]]:
    return lambda: {"NODE_PATH": str(toolchains.node_modules(*packages) / "node_modules")}


def _java(version: str, *programs: str, jars: tuple[str, ...] = ()) -> Callable[[], list[str]]:
    coordinates = (f"org.apache.kafka:kafka-clients:{version}", _SILENT, _JAXB, *jars)

    def command() -> list[str]:
        jars = toolchains.maven_jars(*coordinates)
        sources = [PROGRAMS / "java" / f"{name}.java" for name in programs]
        classes = toolchains.java_classes(sources, jars)
        path = f"{classes}:{jars}/*"
        # These programs live for two seconds: the first compiler alone starts them sooner.
        return [toolchains.java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", path, programs[0]]

    return command


def _ancient_java() -> list[str]:
    jars = toolchains.maven_jars("org.apache.kafka:kafka_2.11:0.8.2.2", _SILENT, _JAXB)
    classes = toolchains.java_classes([PROGRAMS / "java" / "JavaAncient.java"], jars)
    return [toolchains.java(), "-Xmx128m", "-cp", f"{classes}:{jars}/*", "JavaAncient"]


def _go(folder: str) -> Callable[[], list[str]]:
    shared = PROGRAMS / "go" / "contract.go"
    return lambda: [str(toolchains.go_program(PROGRAMS / "go" / folder, shared))]


_JAVA_PROGRAMS = ("JavaClient", "JavaAdmin", "JavaTransactions")
_CODEC_WHEELS = ("lz4", "python-snappy", "zstandard")

CLIENTS = (
    Client(
        name="kcat 1.7",
        language="C",
        command=_kcat,
        scenarios=EVERYTHING - {"admin"},
        timestamps=False,
        aborts=False,
    ),
    Client(
        name="confluent-kafka newest",
        language="C, Python",
        command=_python("confluent_kafka_client.py"),
    ),
    Client(
        name="confluent-kafka 1.9.2",
        language="C, Python",
        command=_python("confluent_kafka_client.py", "3.9", "confluent-kafka==1.9.2"),
    ),
    Client(
        name="confluent-kafka 1.0.0",
        optional=True,
        language="C, Python",
        command=_python("confluent_kafka_client.py", "3.7", "confluent-kafka==1.0.0"),
        scenarios=NO_TRANSACTIONS,
        codecs=OLD_CODECS,
    ),
    Client(
        name="confluent-kafka 0.11.6",
        optional=True,
        language="C, Python",
        command=_python("confluent_kafka_client.py", "3.7", "confluent-kafka==0.11.6"),
        scenarios=NO_TRANSACTIONS,
        codecs=OLD_CODECS,
    ),
    Client(
        name="kafka-python 3",
        language="Python",
        command=_python(
            "kafka_python_client.py", "3.11", "kafka-python>=3.0.12,<4", "crc32c", *_CODEC_WHEELS
        ),
    ),
    Client(
        name="kafka-python 2.0.2",
        language="Python",
        command=_python("kafka_python_client.py", "3.9", "kafka-python==2.0.2", *_CODEC_WHEELS),
        scenarios=NO_TRANSACTIONS,
    ),
    Client(
        name="kafka-python 1.4.7",
        optional=True,
        language="Python",
        command=_python(
            "kafka_python_client.py", "3.7", "kafka-python==1.4.7", "lz4", "python-snappy"
        ),
        scenarios=NO_TRANSACTIONS,
        codecs=OLD_CODECS,
    ),
    Client(
        name="aiokafka newest",
        language="Python",
        command=_python("aiokafka_client.py", "3.11", "aiokafka", "cramjam"),
    ),
    Client(
        name="aiokafka 0.7.2",
        language="Python",
        command=_python(
            "aiokafka_client.py", "3.9", "aiokafka==0.7.2", "kafka-python==2.0.2", *_CODEC_WHEELS
        ),
        scenarios=EVERYTHING - {"admin"},
        codecs=OLD_CODECS,
    ),
    Client(
        name="kafkajs 2.2.4",
        language="JavaScript",
        command=_node("kafkajs_client.js"),
        environment=_node_path(
            "kafkajs@2.2.4", "kafkajs-snappy@1.1.0", "lz4-napi@2.10.0", "zstd-codec@0.1.5"
        ),
    ),
    Client(
        name="@platformatic/kafka 1.35",
        language="JavaScript",
        command=_node("platformatic_client.js"),
        codecs=OLD_CODECS,
        not_run=("zstd",),  # zstd is in Node's own library, from Node 22.15 on
        environment=_node_path("@platformatic/kafka@1.35.0"),
    ),
    Client(
        name="no-kafka 3.4.4",
        language="JavaScript",
        command=_node("no_kafka_client.js"),
        scenarios=frozenset({"produce", "consume"}),
        codecs=("none", "gzip"),
        not_run=("member", "times", "admin", "snappy"),  # its admin knows groups, not topics
        timestamps=False,
        headers=False,
        reads_timestamps=False,
        environment=_node_path("no-kafka@3.4.4"),
    ),
    Client(
        name="Java 4.3.1",
        language="Java",
        command=_java("4.3.1", *_JAVA_PROGRAMS, "JavaToken", "JavaLate", jars=_TOKENS),
    ),
    Client(
        name="Java 3.9.1", language="Java", command=_java("3.9.1", *_JAVA_PROGRAMS, "JavaToken")
    ),
    Client(
        name="Java 2.8.2", language="Java", command=_java("2.8.2", *_JAVA_PROGRAMS, "JavaToken")
    ),
    Client(
        name="Java 1.1.1",
        language="Java",
        command=_java("1.1.1", *_JAVA_PROGRAMS),
        codecs=OLD_CODECS,
    ),
    Client(
        name="Java 0.11.0.3",
        language="Java",
        command=_java("0.11.0.3", *_JAVA_PROGRAMS),
        codecs=OLD_CODECS,
    ),
    Client(
        name="Java 0.10.2.2",
        language="Java",
        command=_java("0.10.2.2", "JavaClient"),
        scenarios=PLAIN,
        codecs=OLD_CODECS,
        headers=False,
    ),
    Client(
        name="Java 0.10.0.1",
        language="Java",
        command=_java("0.10.0.1", "JavaClient"),
        scenarios=NO_LOOKUP,
        codecs=OLD_CODECS,
        headers=False,
    ),
    Client(
        name="Java 0.9.0.1",
        language="Java",
        command=_java("0.9.0.1", "JavaClient"),
        scenarios=NO_LOOKUP,
        codecs=OLD_CODECS,
        timestamps=False,
        headers=False,
        reads_timestamps=False,
    ),
    Client(
        name="Java and Scala 0.8.2.2",
        language="Java, Scala",
        command=_ancient_java,
        scenarios=frozenset({"produce", "consume"}),
        codecs=OLD_CODECS,
        not_run=("times",),  # groups and topics it manages by way of ZooKeeper
        timestamps=False,
        headers=False,
        reads_timestamps=False,
    ),
    Client(name="franz-go 1.22", language="Go", command=_go("franz"), optional=True),
    Client(name="sarama 1.61", language="Go", command=_go("sarama"), optional=True),
    Client(
        name="segmentio kafka-go 0.4.51",
        optional=True,
        language="Go",
        command=_go("segmentio"),
        scenarios=NO_TRANSACTIONS,
        not_run=("transact",),  # as single requests, not with its writer
    ),
)
