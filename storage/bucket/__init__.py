"""The bucket as a second place of the whole data directory: its journal, tails, restore, audit."""
