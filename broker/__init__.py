"""The broker: composes protocol and storage, and is the only part that waits."""
