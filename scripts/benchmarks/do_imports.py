"""What imports cost: `python -m scripts.benchmarks.do_imports - import+A+B PASSES` imports A and B together.

Each pass is a process of its own, which has imported nothing else, and tells what the imports alone cost it.
Compiling is not counted: a process before the first one leaves the compiled files behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from .loads import parse_load
from .reading import Meter, print_report

CODE = """
import resource, sys, time
def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
names = sys.argv[1:]
assert not set(names) & set(sys.modules)
wall, began = time.perf_counter(), cpu()
for name in names:
    __import__(name)
cost = cpu() - began, time.perf_counter() - wall
import json
print(json.dumps([*cost, [name for name in names if name in sys.modules]]))
"""


def import_once(names: list[str]) -> tuple[float, float, list[str]]:
    """Import *names* in a new process; return its CPU seconds, those on the clock, and what is there then."""
    command = [sys.executable, "-c", CODE, *names]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    cpu_s, wall_s, found = json.loads(done.stdout)
    return cpu_s, wall_s, found


def main() -> None:
    """Do what the command line asks for, and print the report."""
    _, path, passes = sys.argv[1:]
    names = parse_load(path).content.split("+")[1:]
    _, _, found = import_once(names)
    meter = Meter()
    for _ in range(int(passes)):
        cpu_s, wall_s, _ = import_once(names)
        meter.cpu_s.append(cpu_s)
        meter.wall_s.append(wall_s)
    print_report(meter, ["".join(found)])


if __name__ == "__main__":
    main()
