"""The data directory: the topics, partitions and settings that this broker keeps.

Owns the lock on the directory, the metadata journal, checkpoints, and the creation and removal of
partition directories. Refuses to know requests. The broker opens storage through `data_dir`.
"""
