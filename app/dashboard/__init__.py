"""The web dashboard: pages rendered on the server.

All pages show one fold of the journal. Server-sent events keep them up to date.
"""
