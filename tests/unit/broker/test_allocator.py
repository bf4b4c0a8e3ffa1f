"""Freed memory of large answers stays, so that the next answer causes no page faults.

Buffers of TLS connections are mapped, so that pages which are not written are not there.
"""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, resource, sys
from broker.allocator import keep_freed_memory
if sys.argv[2] == "kept" and not keep_freed_memory():
    sys.exit("not glibc")
file = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(file).st_size

def faults_of_answers(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        answer = [os.pread(file, size, 0), os.pread(file, size, 0)]
        del answer
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of_answers(5)
print(faults_of_answers(20))
"""


def faults(path: Path, how: str) -> int:
    """The page faults of twenty answers of two megabytes, in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), how], capture_output=True, text=True, check=False
    )
    if "not glibc" in done.stderr:
        pytest.skip("the allocator is not glibc's")
    return int(done.stdout)


def test_large_answers_cause_no_page_faults(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(1_000_000))
    assert faults(path, "kept") < 20
    assert faults(path, "returned") > 20 * 400, "the allocator keeps memory by itself now"


BUFFERS = """
import ctypes, sys
from broker.allocator import TLS_BUFFER_BYTES, keep_freed_memory, map_tls_buffers

allocate = ctypes.pythonapi.PyMem_RawMalloc
allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

def place():
    block = allocate(TLS_BUFFER_BYTES)
    for line in open("/proc/self/maps"):
        start, end = (int(text, 16) for text in line.split()[0].split("-"))
        if start <= block < end:
            return "heap" if "[heap]" in line else "mapped"

map_tls_buffers(begin=True)  # before anything is kept: no change
if not keep_freed_memory():
    sys.exit("not glibc")
for _ in range(64):  # what is free at the end of the heap is taken first, and differs by Python
    allocate(TLS_BUFFER_BYTES)
found = [place()]
for begin in (True, False):
    map_tls_buffers(begin=begin)
    found.append(place())
print(*found)
"""


def test_tls_buffers_are_mapped_and_other_blocks_of_their_size_are_not() -> None:
    done = subprocess.run([sys.executable, "-c", BUFFERS], capture_output=True, text=True)
    if "not glibc" in done.stderr:
        pytest.skip("the allocator is not glibc's")
    assert done.stdout.split() == ["heap", "mapped", "heap"], done.stderr
