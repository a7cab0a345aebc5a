"""Has the process of ``tests.preloaded`` run a command, and stands for it: its pipes, signals and exit code.

python -IS standing.py PID MODULE:FUNCTION [ARGUMENT]...
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect(f"\0evflow tests preloaded {sys.argv[1]}")
request = {
    "file": False,
    "program": sys.argv[2],
    "arguments": sys.argv[3:],
    "env": dict(os.environ),
    "cwd": os.getcwd(),
    "host": "",
}
socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
pid = json.loads(server.recv(1 << 10))[0]
for number in (signal.SIGINT, signal.SIGTERM):
    # A shell ignores SIGINT for what it starts in the background.
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, lambda number, frame: os.kill(pid, number))
code = json.loads(server.recv(1 << 10))[1]
sys.exit(code if code >= 0 else 128 - code)
