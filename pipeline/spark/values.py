"""Values with a schema as columns of any frame: from the topic, the lake, or another source.

Functions over Arrow arrays, because Spark runs those without pandas. The driver asks the registry
for the column's schema once; executors ask it for the schemas that records name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from client.serde.registry import AVRO, LATEST, RegistryAddress, Schema
from pipeline.errors import BadOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_BOTH = "_tidelog_decoded"


def decode(
    frame: DataFrame,
    registry: str | RegistryAddress,
    subject: str,
    *,
    column: str = "value",
    version: int | str = LATEST,
    message: str = "",
    bad: str | None = None,
) -> DataFrame:
    """`frame` with `column` decoded by a schema of a registry, and the bad records beside it.

    The column gets the type of `version` of `subject`. Records of other versions are brought to it
    by the rules of Avro and Protobuf for schemas that have changed; of JSON, properties that the
    schema lacks are left out. `message` names the message type of a Protobuf file with several.
    A record that cannot be decoded is null in `column`, and in the column `bad` (by default
    ``value_bad``) it has its bytes, the id of its schema and the reason; that column is null for
    all others.

    Raises:
        BadOptions: the frame has no such binary column, or has `bad` already.
        BadSchema: the schema cannot be a column.
        NoSuchSchema: the registry has no such subject or version.
        RegistryUnreachable: the registry gave no answer.
    """
    import pyarrow as pa
    from pyspark.sql import functions

    from pipeline.values.coding import BAD_TYPE, coder_of, find_schema

    bad = bad or f"{column}_bad"
    problems = []
    if column not in frame.columns:
        problems.append(f"column={column!r} is not in the frame: {', '.join(frame.columns)}")
    elif frame.schema[column].dataType.typeName() != "binary":
        kind = frame.schema[column].dataType.simpleString()
        problems.append(f"column={column!r} is {kind}: decode the binary column of the source")
    if bad in frame.columns:
        problems.append(f"bad={bad!r} is in the frame already: give another name")
    if problems:
        raise BadOptions(*problems)
    schema = find_schema(_address(registry), subject, version=version, message=message)
    both = pa.struct([("value", coder_of(schema).shape.arrow), ("bad", BAD_TYPE)])

    def decoded(values: pa.Array) -> pa.Array:
        return coder_of(schema).decode(values)

    split = frame.withColumn(_BOTH, _udf(decoded, both)(frame[column]))
    named = {column: functions.col(f"{_BOTH}.value"), bad: functions.col(f"{_BOTH}.bad")}
    return split.withColumns(named).drop(_BOTH)


def encode(
    frame: DataFrame,
    registry: str | RegistryAddress,
    subject: str,
    *,
    column: str = "value",
    schema: str | None = None,
    kind: str = AVRO,
    version: int | str = LATEST,
    message: str = "",
) -> DataFrame:
    """`frame` with `column` as bytes by a schema of a registry, ready to be written to a topic.

    `schema` (of `kind` AVRO, PROTOBUF or JSON) is registered under `subject`, unless it is there
    already; without it `version` of the subject is used. Every field of the column must be in the
    schema, with its type or one that holds it.

    Raises:
        BadOptions: the column does not fit the schema; all fields that do not are named.
        BadSchema: the registry refuses the schema, such as one that its rules call incompatible.
        NoSuchSchema: the registry has no such subject or version.
        RegistryUnreachable: the registry gave no answer.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    from pipeline.values.coding import coder_of, find_schema

    if column not in frame.columns:
        raise BadOptions(f"column={column!r} is not in the frame: {', '.join(frame.columns)}")
    new = None if schema is None else Schema(kind, schema)
    found = find_schema(_address(registry), subject, version=version, message=message, register=new)
    have = to_arrow_type(frame.schema[column].dataType, timezone="UTC")
    problems = coder_of(found).misfits(have, column)
    if problems:
        raise BadOptions(*problems)

    def encoded(values: pa.Array) -> pa.Array:
        return coder_of(found).encode(values)

    return frame.withColumn(column, _udf(encoded, pa.binary())(frame[column]))


def _address(registry: str | RegistryAddress) -> RegistryAddress:
    return RegistryAddress(url=registry) if isinstance(registry, str) else registry


def _udf(function: Any, arrow: pa.DataType) -> Any:
    """A Spark function of one Arrow array."""
    import pyarrow as pa
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_type

    # Spark looks at the types themselves, which are only text in this module.
    function.__annotations__ = {"values": pa.Array, "return": pa.Array}
    kind: DataType = from_arrow_type(arrow)
    # Spark's own hints leave this function out.
    untyped: Any = functions
    return untyped.arrow_udf(function, kind)
