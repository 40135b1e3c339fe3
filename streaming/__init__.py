"""The read side: positions, planner, fetch, groups, Spark source and sink."""
