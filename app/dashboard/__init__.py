"""The web dashboard: pages rendered on the server from one fold of the journal, kept fresh by server-sent events."""
