"""Producer ids and transactions: the state machine, its stored form and its coordinator."""
