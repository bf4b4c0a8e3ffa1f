"""The broker writes the files of commit 33ee9fd byte for byte, but for the listed differences.

`33ee9fd-bytes.json` is what `python -m tests.old_directories.same_bytes` printed for a checkout of
that commit. Files with compressed records also depend on the versions of the codec libraries: if
only those differ after an upgrade, compare two checkouts in the new environment.
"""

import json
from pathlib import Path

from tests.old_directories.same_bytes import digests

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "33ee9fd-bytes.json"
SNAPSHOT_OF_NO_PRODUCERS = "98e930287de7b79c"

# The current assignment of a member of the consumer protocol has the epochs of its partitions, as
# in Kafka 4.3 (KIP-1251): `same_bytes` leaves these values out and compares all other records of
# the offsets topic; the sizes in its manifest differ. Of manifests it leaves one new field out.
CHANGED = {"__consumer_offsets-0/segment-manifest"}


def test_same_workload_gives_same_bytes(tmp_path: Path) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))

    written = digests(ROOT, tmp_path / "data")

    assert {name for name in recorded if written.get(name) != recorded[name]} == CHANGED
    # Rolls and stops take a snapshot of the producers also where there are none.
    # Each segment has counts of its records by time.
    counts = {name for name in written if name.endswith(".counts")}
    added = written.keys() - recorded.keys() - counts
    assert added
    assert counts
    assert {name for name in added if not name.endswith(".snapshot")} == set()
    assert {written[name] for name in added} == {SNAPSHOT_OF_NO_PRODUCERS}
