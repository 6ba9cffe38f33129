"""Mutation testing: change the code in one place, and see whether a test fails.

First record which tests execute which lines, then draw mutants and test them; ``map`` needs the package ``coverage``::

    python tests/support/mutants.py map map.json
    python tests/support/mutants.py run map.json results.jsonl --seed 1 --draw 600
    python tests/support/mutants.py table results.jsonl

Each room gets an equal share of the mutants. A mutant is identified by its file, function, operator, expression and the
number of equal ones before it; a hash of seed and identity orders the draw. So two checkouts draw the same mutants
where their code is the same, and the scores of two suites can be compared. With ``--prefer results.jsonl`` from another
checkout, the test that killed a mutant there comes first. An interrupted run continues where it stopped.

Bodies of functions are mutated, but no texts, logging, assertions, parameters' defaults, ``__repr__``, or kernels that
numba compiles. A mutant is tested by tests that execute its statement: the fastest ones and some of each file, until
one fails. It survives if none does, or if no test executes it. A test that fails without the mutant, too, does not
count. A test that takes a minute fails. Processes that a test starts run the original code.

Tests are imported once. Each mutant gets a fork of that process, where existing functions get the changed code.
A mutant is void if its function then shares other variables with an outer function, because Python refuses that.
"""

import argparse
import ast
import gc
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from itertools import chain, zip_longest
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import hypothesis
import pytest

ROOT = Path(__file__).parents[2]
SUITE = ("unit", "property", "contract", "replay", "examples")
ROOMS = ("controllers", "fold", "bus", "journal", "league", "play", "learning", "store")
FOLD = ("app/controllers/fold.py", "app/controllers/state.py")
SERVERS = {"own_ray", "s3", "bucket"}  # fixtures; each fork would start a server
OPTIONS = ("--timeout=60", "-qs", "-n0", "-pno:cacheprovider", "-Wignore::pytest.PytestAssertRewriteWarning")
PROCESSES = 2
TIMEOUT_S = 300  # for all tests of a mutant
MAX_TESTS_S = 8  # for the tests of one mutant, as timed by ``map``

BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
OPPOSITE = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "args", "exc", "cause"}
LOGGING = re.compile(r"log\w*(\(.*\))?\.(debug|info|warning|error|exception)$")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Change = tuple[str, ast.AST]  # an operator, and the node that it puts in another's place


@dataclass(frozen=True)
class Mutant:
    """A change in a function. ``change`` makes it in the tree that the mutant was found in."""

    path: str
    function: str = ""
    lines: tuple[int, int] = (0, 0)  # of the statement, without a body
    operator: str = ""
    source: str = ""
    ordinal: int = 0
    change: Callable[[], None] = field(default=lambda: None, repr=False)

    @property
    def identity(self) -> str:
        return "::".join((self.path, self.function, self.operator, self.source, str(self.ordinal)))

    @property
    def room(self) -> str:
        return "fold" if self.path in FOLD else self.path.split("/")[1]

    def compiled(self) -> CodeType:
        """Compile the changed file."""
        tree = ast.parse((ROOT / self.path).read_bytes())
        next(mutant for mutant in mutants(self.path, tree) if mutant.identity == self.identity).change()
        return compile(ast.fix_missing_locations(tree), str(ROOT / self.path), "exec")


def mutants(path: str, tree: ast.Module) -> Iterator[Mutant]:
    """Yield the mutants of a file."""
    seen: Counter[str] = Counter()
    for mutant in _below(tree, Mutant(path)):
        yield replace(mutant, ordinal=seen[mutant.identity])
        seen[mutant.identity] += 1


def _below(node: ast.AST, place: Mutant) -> Iterator[Mutant]:
    for name, value in ast.iter_fields(node):
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _skipped(node, name, child):
                continue
            inner = _entered(place, child)
            if inner.lines[0]:
                for operator, new in _changes(name, child):
                    ast.copy_location(new, child)
                    put = value.__setitem__ if isinstance(value, list) else partial(setattr, node)
                    change = partial(put, index if isinstance(value, list) else name, new)
                    yield replace(inner, operator=operator, source=ast.unparse(child)[:100], change=change)
            yield from _below(child, inner)


def _skipped(parent: ast.AST, name: str, node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Expr(value=ast.Constant()):
            return True
        case ast.FunctionDef(name="__repr__" | "__str__"):
            return True
        case ast.FunctionDef(decorator_list=[ast.Name(id="kernel" | "inlined")]):
            return True
        case ast.Expr(value=ast.Call(func=func)):
            return bool(LOGGING.search(ast.unparse(func)))
    types = isinstance(parent, ast.Call) and ast.unparse(parent.func) == "isinstance"
    return types or (name in SKIPPED_FIELDS and not isinstance(parent, ast.Call))


def _entered(place: Mutant, node: ast.AST) -> Mutant:
    """Return the function and the lines of a node; there are none outside of functions."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            lines = (0, 0) if isinstance(node, ast.ClassDef) else (node.body[0].lineno, node.body[-1].end_lineno or 0)
            return replace(place, function=f"{place.function}.{name}".lstrip("."), lines=lines)
        case ast.stmt() if place.lines[0]:
            body = getattr(node, "body", None)
            return replace(place, lines=(node.lineno, body[0].lineno - 1 if body else node.end_lineno or 0))
        case ast.expr() if 0 < place.lines[1] < node.lineno:  # a case, which is no statement
            return replace(place, lines=(node.lineno, node.end_lineno or 0))
    return place


def _of_operator(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                for new in {BOUNDARY.get(type(op)), OPPOSITE[type(op)]} - {None}:
                    yield _swap(op, new), _with(node, ops=[*ops[:index], new(), *ops[index + 1 :]])
        case ast.BoolOp(op=op):
            yield _swap(op, OPPOSITE[type(op)]), _with(node, op=OPPOSITE[type(op)]())
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC and not _textual(node):
            yield _swap(op, ARITHMETIC[type(op)]), _with(node, op=ARITHMETIC[type(op)]())


def _of_value(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield f"no {type(node.op).__name__}", operand
        case ast.Constant(value=bool(value)):
            yield "flipped", ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from (("+ 1", ast.Constant(value + 1)), ("- 1", ast.Constant(value - 1)))
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield CALLS[name], _with(node, func=ast.Name(CALLS[name], ast.Load()))


def _of_statement(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) not in {"None", "True", "False"}:
            yield "None", ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete() | ast.Raise():
            yield "dropped", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "dropped", ast.Pass()


def _changes(name: str, node: ast.AST) -> Iterator[Change]:
    yield from chain(_of_operator(node), _of_value(node), _of_statement(node))
    if name in {"test", "ifs"} and not isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield "negated", ast.UnaryOp(ast.Not(), node)


def _swap(old: ast.AST, new: type[ast.AST]) -> str:
    return f"{type(old).__name__} to {new.__name__}"


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


def _textual(node: ast.AST) -> bool:
    """Return whether an operator joins texts or parts of a path."""
    parts = (getattr(node, name, None) for name in ("left", "right", "value"))
    return any(isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str) for part in parts)


def files() -> list[Path]:
    """Return the files of all rooms."""
    return sorted(path for room in {*ROOMS} - {"fold"} for path in (ROOT / "app" / room).glob("*.py"))


def draw(seed: int, count: int) -> list[Mutant]:
    """Return mutants, rooms in turn, so that any number of the first ones is a fair sample."""
    rooms: dict[str, list[Mutant]] = {room: [] for room in ROOMS}
    for path in files():
        for mutant in mutants(str(path.relative_to(ROOT)), ast.parse(path.read_bytes())):
            rooms[mutant.room].append(mutant)
    for of_room in rooms.values():
        of_room.sort(key=lambda mutant: sha256(f"{seed} {mutant.identity}".encode()).digest())
    turns = chain.from_iterable(zip_longest(*(of_room[: count // len(ROOMS)] for of_room in rooms.values())))
    return [mutant for mutant in turns if mutant]


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of functions, also of nested ones."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes(constant)


class Tests:
    """A plugin for pytest that gives the collected tests to a function, and runs those that it asks for."""

    def __init__(self, use: Callable[["Tests"], None]) -> None:
        self._use = use
        self.items: dict[str, pytest.Item] = {}
        self.failed = ""
        self.seconds: dict[str, float] = {}  # of processors, also of started processes, so that load matters little
        self.not_passed: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", max_examples=25, derandomize=True, database=None, phases=phases)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        local = (item for item in session.items if not SERVERS & {*getattr(item, "fixturenames", ())})
        self.items = {item.nodeid: item for item in local}
        self._use(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.not_passed.add(report.nodeid)
        if report.failed:
            self.failed = report.nodeid

    def run(self, names: Iterable[str]) -> Iterator[str]:
        """Run tests; yield the name of each before it runs."""
        items = [self.items[name] for name in names if name in self.items]
        for item, following in zip_longest(items, items[1:]):
            yield item.nodeid
            started = sum(os.times()[:4])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self.seconds[item.nodeid] = sum(os.times()[:4]) - started


def record(out: Path) -> None:
    """Record which tests execute which lines."""
    suite = sorted(str(path) for folder in SUITE for path in (ROOT / "tests" / folder).glob("test_*.py"))
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder, str(index)) for index in range(PROCESSES)]
        in_processes([partial(_record, suite[index::PROCESSES], part) for index, part in enumerate(parts)])
        recorded = [json.loads(part.read_text()) for part in parts]
    tests = {test: seconds for part in recorded for test, seconds in part["tests"].items()}
    numbers = {test: number for number, test in enumerate(tests)}
    lines: dict[str, list[int]] = defaultdict(list)
    for part in recorded:
        for line, executed in part["lines"].items():
            lines[line] += [numbers[test] for test in executed if test in tests]
    out.write_text(json.dumps({"tests": tests, "lines": lines}))


def _record(suite: list[str], out: Path) -> None:
    from coverage import Coverage  # only recording needs it

    coverage = Coverage(data_file=None, include=[str(path) for path in files()], config_file=False)

    def run(tests: Tests) -> None:
        for test in tests.run(tests.items):
            coverage.switch_context(test)

    tests = Tests(run)
    coverage.start()
    pytest.main([*OPTIONS, *suite], plugins=[tests])
    coverage.stop()
    data = coverage.get_data()
    lines = {
        f"{Path(path).relative_to(ROOT)}:{line}": executed
        for path in data.measured_files()
        for line, executed in data.contexts_by_lineno(path).items()
    }
    passed = {test: seconds for test, seconds in tests.seconds.items() if test not in tests.not_passed}
    out.write_text(json.dumps({"tests": passed, "lines": lines}))


def choose(mutant: Mutant, seconds: dict[str, float], lines: dict[str, list[int]]) -> list[str]:
    """Return some tests that execute the mutant, the fastest first."""
    names = list(seconds)
    first, last = mutant.lines
    executing = {names[test] for line in range(first, last + 1) for test in lines.get(f"{mutant.path}:{line}", ())}
    of_file, of_function, ranks = Counter(), Counter(), {}
    for name in sorted(executing, key=lambda name: (seconds[name], name)):
        path, function = name.split("::")[0], name.split("[")[0]
        ranks[name] = (of_file[path] + 3 * of_function[function], seconds[name])
        of_file[path] += 1
        of_function[function] += 1
    chosen: dict[str, float] = {}
    for candidates, most_s in ((ranks, MAX_TESTS_S / 2), (sorted(ranks, key=ranks.__getitem__), MAX_TESTS_S)):
        for name in candidates:
            if not chosen or sum(chosen.values()) + seconds[name] < most_s:
                chosen[name] = seconds[name]
    return sorted(chosen, key=seconds.__getitem__)


def judge(drawn: list[tuple[Mutant, list[str]]], out: Path, tests: Tests) -> None:
    """Test mutants in forks of this process, and append the verdicts to a file."""
    for path in files():
        import_module(".".join(("flyball", *path.relative_to(ROOT).with_suffix("").parts)))
    functions = [function for function in gc.get_objects() if type(function) is FunctionType]

    @cache
    def is_sound(test: str) -> bool:
        return attempt(tests, [test])[0] == "survived"

    for mutant, names in drawn:
        imported = str(ROOT / "flyball" / mutant.path)
        existing = [function for function in functions if function.__code__.co_filename == imported]
        verdict, test = "survived", ""
        while names:
            verdict, test = attempt(tests, names, partial(_install, mutant, existing))
            if not test or is_sound(test):
                break
            names.remove(test)
            verdict, test = "survived", ""
        line = {"mutant": mutant.identity, "room": mutant.room, "verdict": verdict, "test": test}
        with out.open("a") as file:
            file.write(json.dumps(line | {"line": mutant.lines[0], "tests": len(names)}) + "\n")


def _install(mutant: Mutant, existing: list[FunctionType]) -> None:
    changed = {(code.co_qualname, code.co_firstlineno): code for code in codes(mutant.compiled())}
    for function in existing:
        old = function.__code__
        new = changed.get((old.co_qualname, old.co_firstlineno), old)
        if new != old:
            function.__code__ = new


def attempt(tests: Tests, names: list[str], install: Callable[[], None] = lambda: None) -> tuple[str, str]:
    """Run tests in a fork until one fails; return the verdict and that test."""
    with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as folder:
        now = Path(folder, "now")
        child = os.fork()
        if not child:
            _run_until_failure(tests, names, install, now)
        deadline = time.monotonic() + TIMEOUT_S
        while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        with suppress(ProcessLookupError):  # what the tests started, too
            os.killpg(child, signal.SIGKILL)
        if not ended[0]:
            os.waitpid(child, 0)
            return "timeout", now.read_text()
        test = now.read_text()
        return ("killed" if test else "void", test) if ended[1] else ("survived", "")


def _run_until_failure(tests: Tests, names: list[str], install: Callable[[], None], now: Path) -> None:
    os.setsid()
    for standard in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), standard)
    os.environ |= {"PYTEST_DEBUG_TEMPROOT": str(now.parent), "XDG_CACHE_HOME": str(now.parent)}
    now.touch()
    code = 1
    try:
        install()
        for name in tests.run(names):
            if tests.failed:
                break
            now.write_text(name)
        code = int(bool(tests.failed))
    finally:
        os._exit(code)


def run(arguments: argparse.Namespace) -> None:
    """Test the mutants that have no result yet."""
    recorded = json.loads(arguments.map.read_text())
    killers = {line["mutant"]: line["test"] for line in results(arguments.prefer)}
    done = {line["mutant"] for line in results(arguments.out)}
    drawn = []
    for mutant in draw(arguments.seed, arguments.draw):
        if mutant.identity not in done:
            killer = {killers.get(mutant.identity, "")} & recorded["tests"].keys()
            chosen = choose(mutant, recorded["tests"], recorded["lines"])
            drawn.append((mutant, [*killer, *(name for name in chosen if name not in killer)]))
    in_processes([partial(_run, drawn[index::PROCESSES], arguments.out) for index in range(PROCESSES)])


def _run(drawn: list[tuple[Mutant, list[str]]], out: Path) -> None:
    paths = {path for _, names in drawn for name in names if Path(path := name.split("::")[0]).exists()}
    pytest.main([*OPTIONS, *sorted(paths)], plugins=[Tests(partial(judge, drawn, out))])


def in_processes(works: list[Callable[[], None]]) -> None:
    """Do several things, each in a fork."""
    processes = [get_context("fork").Process(target=work) for work in works]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def results(path: Path | None) -> list[dict[str, Any]]:
    """Return the lines of a file of results."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def table(path: Path) -> str:
    """Return the score of each room."""
    rows = ["| room | drawn | killed | survived | score |", "| --- | --- | --- | --- | --- |"]
    for room in (*ROOMS, "all"):
        verdicts = Counter(line["verdict"] for line in results(path) if room in {line["room"], "all"})
        drawn, survived = verdicts.total() - verdicts["void"], verdicts["survived"]
        rows.append(f"| {room} | {drawn} | {drawn - survived} | {survived} | {1 - survived / max(drawn, 1):.0%} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation testing; see the top of this file.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("map").add_argument("map", type=Path)
    command = commands.add_parser("run")
    command.add_argument("map", type=Path)
    command.add_argument("out", type=Path)
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--draw", type=int, default=600)
    command.add_argument("--prefer", type=Path)
    commands.add_parser("table").add_argument("out", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "map":
        record(arguments.map)
    elif arguments.command == "run":
        run(arguments)
    else:
        sys.stdout.write(table(arguments.out))


if __name__ == "__main__":
    main()
