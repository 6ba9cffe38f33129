"""The daemons: thin shells, one file each."""
