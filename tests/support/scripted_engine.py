"""A GTP engine that always passes, or misbehaves.

The first argument is the mode of misbehaviour. A mode that ends in ``-once`` is for the first start only. The second
argument is a file: each start adds a line with the process's number.
"""

import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    mode, starts = sys.argv[1], Path(sys.argv[2])
    with starts.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if mode.endswith("-once"):
        mode = mode.removesuffix("-once") if len(starts.read_text().split()) == 1 else "well"
    for line in sys.stdin:
        number, _, command = line.strip().partition(" ")
        answer = "=" + number
        if command.startswith("genmove"):
            answer += " " + misbehave(mode, number)
        elif command.startswith("set_random_seed") or mode == "refuses":
            answer = f"?{number} unknown command"
        write(f"{answer}\n")


def write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def misbehave(mode: str, number: str) -> str:  # noqa: C901 - a case for each fault
    match mode:
        case "dies":
            sys.exit("out of stones")
        case "hangs":
            time.sleep(600)
        case "floods":
            while True:
                write("x" * 65536)
        case "chatters":
            while True:
                write("# thinking")
        case "illegal":
            return "z99"
        case "leaves":  # a child in its own session keeps stdout and stderr open
            with Path(sys.argv[2]).open("a") as file:
                child = subprocess.Popen(("sleep", "600"), start_new_session=True)
                file.write(f"{child.pid}\n")
        case "resigns":
            return "resign"
    return "PASS"


main()
