"""A member of a consumer group as a client sees it: calls, subscription, the thread that keeps it in the group."""
