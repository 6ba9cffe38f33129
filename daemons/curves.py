"""The curves daemon; see ``app.runtime.registry`` for what runs in it."""

from daemons.entry import main

if __name__ == "__main__":
    main("curves")
