"""The daemons, one file each, and the host that runs them."""

if __name__ != "flyball.daemons":
    raise ImportError("This folder of a checkout of Flyball is the package flyball.daemons; import that name.")
