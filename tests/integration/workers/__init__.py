"""Several worker processes: clients route themselves, each worker dies and recovers alone."""
