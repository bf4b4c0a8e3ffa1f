"""Tests of `broker.workers`; tests/integration/workers has those with real processes."""
