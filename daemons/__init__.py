"""The daemons, one file each, and the host that runs them."""
