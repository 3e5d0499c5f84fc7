"""Records the call path of a cold miss with gdb.

Run it at the root of the checkout, after `cargo test -p forebay-engine --test it --no-run`:

    gdb --batch --command xtask/call-path.py --args target/debug/deps/it-HASH --test-threads 1 \
        --exact stampede::what_one_thread_loads_is_a_hit_on_another

It stops at the lookup in memory, the table of flights, the start of the task, the front end's load, the
store in memory, and the announcement, with which the path is over. It prints the functions of the engine
that are on the stack there, each once, in the order of the calls. The memory tier and the front end are
the ends of the path. Closures and futures belong to their function.
"""

import re
import subprocess

import gdb

STOPS = (
    "memory::MemoryTier::find",
    "memory::MemoryTier::store",
    "flight::Flights::join",
    "flight::LeaderGuard::announce",
    "tokio::task::spawn::spawn",
    "Load>::load",
)
SOURCE = "forebay-engine/src/"


def symbols(program):
    """Mangled names of the functions to stop at."""
    mangled, plain = (
        subprocess.run(["nm", *option, program], capture_output=True, text=True, check=True).stdout
        for option in ([], ["--demangle"])
    )
    for name, readable in zip(mangled.splitlines(), plain.splitlines()):
        if readable.endswith(STOPS) and " U " not in readable:
            yield name.split()[-1]


def function(frame):
    """File and function of a frame of the engine, else nothing."""
    table = frame.find_sal().symtab
    if table is None or SOURCE not in table.filename or table.filename.endswith("/memory.rs"):
        return None
    symbol = gdb.execute(f"info symbol {frame.pc()}", to_string=True)
    name = re.sub(r"::h[0-9a-f]{16}.*| \+ .*| in section.*", "", symbol.strip())
    name = re.sub(r"(::\{\{closure\}\})+|<L>", "", name)
    return table.filename.split(SOURCE)[1], "::".join(re.search(r"(\w+)>?::(\w+)$", name).groups())


class Stop(gdb.Breakpoint):
    """Point at which the stack is read."""

    seen = []

    def stop(self):
        if any(name == "LeaderGuard::announce" for _, name in self.seen):
            return False
        frame, stack = gdb.newest_frame(), []
        while frame is not None:
            stack.append(function(frame))
            frame = frame.older()
        for found in filter(None, reversed(stack)):
            if found not in self.seen:
                self.seen.append(found)
        return False


for symbol in list(symbols(gdb.current_progspace().filename)):
    Stop(symbol)
gdb.execute("set pagination off")
gdb.execute("run", to_string=True)
for file, name in Stop.seen:
    print(f"{file:20} {name}")
print(f"{len(Stop.seen)} functions in {len({file for file, _ in Stop.seen})} files")
