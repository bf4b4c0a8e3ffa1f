"""The state of one partition directory while it is opened, shared by the passes of recovery."""

from dataclasses import field

from config import TopicConfig
from storage.disk.file_names import (
    AUXILIARY_SUFFIXES,
    offset_file_name,
    parsed_names,
)
from storage.disk.files import Files
from storage.errors import LogQuarantined
from storage.log.leader_epochs import LeaderEpochs
from storage.log.producers import LogProducers
from storage.log.values import RecoveryReport
from storage.segment.facts import RemoteObject
from storage.segment.manifest import Manifest
from values.dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class DirectoryOpening:
    """One partition directory while it is being opened.

    `start` is the log's start as far as the manifest and the checkpoint know it.
    """

    files: Files
    path: str
    config: TopicConfig
    now_ms: int
    is_clean: bool
    recovery_point: int
    start: int
    manifest: Manifest
    producers: LogProducers
    epochs: LeaderEpochs
    names: list[str]
    report: RecoveryReport = field(default_factory=RecoveryReport)
    quarantine: LogQuarantined | None = None
    end_position: int | None = None

    @property
    def remote(self) -> dict[int, RemoteObject]:
        """The objects of segments that are part of the log and have no `.log` here, by base."""
        if not self.manifest.remote:
            return {}
        here = {one.base_offset for one in parsed_names(self.names) if one.is_log}
        return self.manifest.remote_only(here)

    def remove_auxiliary(self, base_offset: int) -> None:
        """Unlink the auxiliary indexes of a segment: they must not be trusted."""
        for suffix in AUXILIARY_SUFFIXES:
            name = offset_file_name(base_offset, suffix)
            if name in self.names:
                self.remove(name)

    def remove(self, name: str) -> None:
        """Unlink a file of the directory and note it."""
        self.files.unlink(f"{self.path}/{name}")
        self.names.remove(name)
        self.report.removed_files.append(name)
