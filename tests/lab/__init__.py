"""A lab that tries to break the log: clients of every kind, nemeses, a history, and a checker that judges it."""
