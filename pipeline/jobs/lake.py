"""Where an archive goes: plain Parquet, a Delta table or an Iceberg table.

The files are the same; only their list differs. Parquet's list is the archive's journal, or the
directory itself for readers without the journal. Delta and Iceberg keep their own log, which gets a
batch once, under its number: a second commit of the same number is detected and skipped. Neither
needs a JAR: delta-rs and pyiceberg make the commits here, in the driver.

Source: Delta protocol, transaction identifiers (`txn`); Iceberg `add_files`.
"""

import contextlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from client.times import UTC, format_time
from pipeline.errors import BadOptions, JournalConflict
from pipeline.jobs.files import DATED_SCHEMA, EVENT_DATE, FILE_SCHEMA
from pipeline.options.reader import is_store, local_path
from pipeline.plan.archived import WrittenFile
from pipeline.plan.folders import folder_of
from pipeline.plan.journal import Journal

STORAGE: Final = {"allow_http": "true"}
"""For delta-rs; a server on a private network often has no certificate, and the address decides."""
APPLICATION: Final = "tidelog-archive"
"""Our name in a table's log, before the archive's own id."""
_TRIES: Final = 5
_PAUSE_S: Final = 0.2


class ParquetLake:
    """Files in a folder, listed by the journal of the archive.

    Attributes:
        folder: where data files go.
        target: its name in the plans of the archive: an absolute path, or a table's name.
    """

    def __init__(self, target: str, state_dir: str) -> None:
        """Use the folder `target`, a path or the address of a store.

        Raises:
            BadOptions: as `folder_of`.
        """
        self.folder = self.target = folder_of(target).address
        self._state = Journal(state_dir)
        self._markers = Journal(f"{self.folder}/_complete")

    @property
    def has_dated_files(self) -> bool:
        """Whether files have their date in a column, not in the name of their directory alone.

        No: readers take the date from the directory, or from the table's log.
        """
        return False

    def target_of(self, planned: str) -> str:
        """This release's name for the target of a plan.

        Absolute, also where an earlier release has kept the user's relative path.
        """
        return folder_of(planned).address

    @property
    def app_id(self) -> str:
        """The archive's own name in a table's log: several may write into one table."""
        made = {"id": uuid.uuid4().hex}
        return f"{APPLICATION}-{self._state.put('identity', made)['id']}"

    def has_batch(self, number: int) -> bool:
        """Whether the batch is committed: by the journal's commit, which is written last."""
        return self._state.find(f"commits/{number:08d}") is not None

    def commit(self, number: int, files: Sequence[WrittenFile]) -> None:
        """Make the files of a batch part of the table: here the journal's commit lists them."""

    def is_complete(self, day: str) -> bool:
        """Whether `_complete/DAY.json` is there."""
        return bool(day) and self._markers.find(day) is not None

    def mark_complete(self, day: str, number: int) -> None:
        """Write `_complete/DAY.json`; the first one stays."""
        self._markers.put(day, {"date": day, "batch": number})


class DeltaLake(ParquetLake):
    """A Delta table in a folder, partitioned by event date."""

    def has_batch(self, number: int) -> bool:
        """Whether the table's log holds the batch under our application's name."""
        deltalake = _needed("deltalake")
        if not deltalake.DeltaTable.is_deltatable(self.folder, STORAGE):
            return False
        version = deltalake.DeltaTable(self.folder, storage_options=STORAGE).transaction_version(
            self.app_id
        )
        # Not "version or -1": batch 0 is a batch.
        return version is not None and version >= number

    def commit(self, number: int, files: Sequence[WrittenFile]) -> None:
        """One transaction that adds the files and the batch number."""
        deltalake = _needed("deltalake")
        from deltalake import transaction

        if not deltalake.DeltaTable.is_deltatable(self.folder, STORAGE):
            deltalake.DeltaTable.create(
                self.folder,
                schema=deltalake.Schema.from_arrow(DATED_SCHEMA),
                partition_by=[EVENT_DATE.name],
                storage_options=STORAGE,
            )
        table = deltalake.DeltaTable(self.folder, storage_options=STORAGE)
        now_ms = time.time_ns() // 1_000_000
        actions = [
            transaction.AddAction(
                path=file.path.removeprefix(f"{self.folder}/"),
                size=file.size_bytes,
                partition_values={"event_date": file.event_date or None},
                modification_time=now_ms,
                data_change=True,
                stats=json.dumps(_delta_stats(file)),
            )
            for file in files
        ]
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(app_id=self.app_id, version=number)]
        )
        table.create_write_transaction(
            actions, "append", table.schema(), ["event_date"], commit_properties=properties
        )


class IcebergLake(ParquetLake):
    """An Iceberg table; target is `NAMESPACE.NAME`, the catalogue SQLite in the state directory.

    It is partitioned by `event_date`, which files have as a column: `add_files` takes the values of
    partitions from files alone. A table that an earlier release has made has neither, and stays so.

    Another catalogue is configured as pyiceberg documents it (`PYICEBERG_CATALOG__TIDELOG__...`).
    """

    def __init__(self, target: str, state_dir: str) -> None:
        """Open or make the catalogue. Raises BadOptions for a target that names no table."""
        if target.count(".") != 1 or "/" in target:
            raise BadOptions(f"target {target!r}: for iceberg write NAMESPACE.TABLE")
        if is_store(state_dir):
            raise BadOptions(
                f"state directory {state_dir!r}: Iceberg's catalogue and files are in it, and "
                "they need a file system; give a path, or take --format parquet or delta"
            )
        state = str(local_path(state_dir))
        Path(state).mkdir(parents=True, exist_ok=True)
        super().__init__(f"{state}/warehouse/{target.replace('.', '/')}", state_dir)
        self.target = target
        catalogs = _needed("pyiceberg.catalog", "pyiceberg[sql-sqlite]")
        self._catalog = catalogs.load_catalog(
            "tidelog",
            **{"type": "sql", "uri": f"sqlite:///{state}/iceberg.db", "warehouse": f"file://{state}"},
        )  # fmt: skip

    @property
    def has_dated_files(self) -> bool:
        """Whether the table has the column; a new one has it."""
        if not self.has_table:
            return True
        schema = self._catalog.load_table(self.target).schema()
        return EVENT_DATE.name in schema.column_names

    def target_of(self, planned: str) -> str:
        """The table's name as it is."""
        return planned

    def has_batch(self, number: int) -> bool:
        """Whether a snapshot carries the batch's number."""
        return self.has_table and any(self._snapshots_with(self.app_id, number))

    def commit(self, number: int, files: Sequence[WrittenFile]) -> None:
        """One snapshot that adds the files, with the batch's number."""
        namespace = self.target.split(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        if not self.has_table:
            self._create(files[0])
        table = self._catalog.load_table(self.target)
        table.add_files(
            [f"file://{file.path}" for file in files],
            snapshot_properties={self.app_id: str(number)},
        )

    @property
    def has_table(self) -> bool:
        """Whether the table is there."""
        return bool(self._catalog.table_exists(self.target))

    def replace(self, number: int, replaced: Sequence[str], files: Sequence[WrittenFile]) -> None:
        """One snapshot without `replaced` (paths) and with `files`; nothing if it has been made.

        It carries the compaction's `number`. Raises:
            JournalConflict: the table has only some of the files, or others change it all the time.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        made, gone = ({f"file://{one}" for one in paths} for paths in
                      ([file.path for file in files], replaced))  # fmt: skip
        for attempt in range(_TRIES + 1):
            table = self._catalog.load_table(self.target)
            there = {task.file.file_path: task.file for task in table.scan().plan_files()}
            if made <= there.keys() and not gone & there.keys():
                return
            if made & there.keys() or not gone <= there.keys():
                missing = sorted(gone - there.keys()) or sorted(made & there.keys())
                raise JournalConflict(
                    f"table {self.target} is not as the archive lists it, for example "
                    f"{missing[0]}: another program has rewritten it; it is not compacted here"
                )
            if attempt == _TRIES:
                break
            with (
                contextlib.suppress(CommitFailedException),
                table.transaction() as making,
                making.update_snapshot({self._compacted: str(number)}).overwrite() as snapshot,
            ):
                for path in gone:
                    snapshot.delete_data_file(there[path])
                for path in sorted(made):
                    added = parquet_file_to_data_file(table.io, table.metadata, path)
                    snapshot.append_data_file(added)
            # An archive run may have added a batch meanwhile; the next look shows it.
            time.sleep(attempt * _PAUSE_S)
        raise JournalConflict(
            f"table {self.target} was changed {_TRIES} times meanwhile: compact it while the "
            "archive job pauses"
        )

    def replaced_ms(self, number: int) -> int:
        """When the table learnt of a compaction, in ms; 0 where no snapshot knows any more."""
        made = self._snapshots_with(self._compacted, number)
        return max((snapshot.timestamp_ms for snapshot in made), default=0)

    def _snapshots_with(self, name: str, number: int) -> Iterator[Any]:
        """The snapshots whose property `name` is `number`."""
        for snapshot in self._catalog.load_table(self.target).metadata.snapshots:
            summary = snapshot.summary
            if summary is not None and summary.additional_properties.get(name) == str(number):
                yield snapshot

    @property
    def _compacted(self) -> str:
        """The property of a snapshot that has the number of its compaction."""
        return f"{self.app_id}-compaction"

    def expire_snapshots(self, before_ms: int) -> None:
        """Drop the snapshots from before a time (ms), but for the current one and tagged ones."""
        when = datetime.fromtimestamp(before_ms / 1000, UTC)
        table = self._catalog.load_table(self.target)
        table.maintenance.expire_snapshots().older_than(when).commit()

    def paths_before(self, before_ms: int) -> set[str]:
        """The files that the snapshots from before a time (ms) name."""
        table = self._catalog.load_table(self.target)
        return {
            task.file.file_path.removeprefix("file://")
            for snapshot in table.snapshots()
            if snapshot.timestamp_ms < before_ms
            for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
        }

    def _create(self, file: WrittenFile) -> None:
        """Make the table for files like `file`, which an earlier release may have written."""
        if EVENT_DATE.name not in pq.read_schema(file.path).names:
            self._catalog.create_table_if_not_exists(self.target, FILE_SCHEMA)
            return
        taken = _needed("pyiceberg.exceptions").TableAlreadyExistsError
        # Another archive into the same table may have made it meanwhile.
        with contextlib.suppress(taken):
            making = self._catalog.create_table_transaction(self.target, DATED_SCHEMA)
            with making, making.update_spec() as spec:
                spec.add_identity(EVENT_DATE.name)


LAKES: Final[Mapping[str, type[ParquetLake]]] = {
    "parquet": ParquetLake,
    "delta": DeltaLake,
    "iceberg": IcebergLake,
}
"""By the user's option value."""


def _delta_stats(file: WrittenFile) -> dict[str, Any]:
    least: dict[str, Any] = {"offset": file.first_offset}
    most: dict[str, Any] = {"offset": file.last_offset}
    # Without a date there may be no text for the time either: then it is left out.
    if file.event_date:
        least["timestamp"] = format_time(file.min_timestamp_ms, UTC)
        most["timestamp"] = format_time(file.max_timestamp_ms, UTC)
    return {"numRecords": file.rows, "minValues": least, "maxValues": most}


def _needed(module: str, package: str = "") -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise BadOptions(
            f"this format needs the package {package or module}: pip install 'tidelog[spark]'"
        ) from error
