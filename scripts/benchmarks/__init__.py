"""What aiio costs, beside the limit (a bare trio socket) and the clients people use today.

One loopback server in its own process sends pre-rendered answers. Each contender reads the same answer
in a process of its own, third-party ones from a virtual environment of their own, and reports the user
and system CPU of that process around the measured part only. Repeats are interleaved over everything
that is measured, and medians are taken, so that a slow minute of the machine falls on all alike. Absolute
figures move with the machine; the ratios are what has a goal.

    loads.py         what is sent: a load is a value, and its name is the path of the URL
    wires.py         the wires besides Chat Completions
    server.py        the process that sends it
    contenders.py    who reads it: module, requirements, virtual environment
    reading.py       what all reading processes share: passes, CPU meter, streams that are held, the report
    lateness.py      a timer in the loop that reads
    read_*.py        one contender each
    do_*.py          work of another kind: context and builder, fleets and trees of runs, imports
    do_instructions.py, in_memory.py  the path of an event under callgrind, without sockets
    figures.py       what a row is made of: cells, figures of them, a goal
    rows.py          what is compared with what, and the goals
    measuring.py     the interleaved runs, checked to have received the same text
    report.py        the Markdown table and the JSON file
"""
