"""The web console: its pages, the stream that keeps them up to date, and the calls that it adds to the API."""
