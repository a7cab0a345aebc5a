"""A process that can open no more files: events wait or flow on, no flow ends, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import os, resource, sys, threading, time
from pathlib import Path
import numpy as np
import evflow as ev

class Small(ev.Event):
    number: int

class Large(ev.Event):
    number: int
    text: str
    data: ev.Array[ev.f64, None]

folder = Path(sys.argv[1])
seen, handled = [], []

def fail(event):
    raise ValueError("planted")

g = ev.Graph("scarce")
source = g.source("numbers", Small, Large, on="a")
some = source >> ev.Filter("input.number >= 0", name="some", on="a")
_ = some >> ev.Terminal(lambda event: seen.append(event.number), name="seen", on="b")
_ = some >> ev.Terminal(lambda event: handled.append(event.number), name="handled", on="b", workers=2)
_ = some >> ev.SparkSink(Small, path=folder / "rows", name="rows", on="b")
store = some >> ev.Storage(1_000_000, path=folder / "kept", name="kept", on="a")
_ = store >> ev.Terminal(lambda event: None, name="end", on="a")
matches = some >> ev.Match([], path=folder / "subscriptions", name="match", on="b")
_ = matches >> ev.Terminal(lambda event: None, name="matched", on="b")
_ = g.source("faulty", Small, on="a") >> ev.Terminal(fail, name="failing", on="a")
there = g.run(node=ev.Node("b", listen="tcp://127.0.0.1:0", heartbeat=0.2))
here = g.run(node=ev.Node("a", peers={"b": there.node.contact}, heartbeat=0.2))
if sys.argv[2] == "after the first events":
    here["numbers"].submit(Small(0))
    here.drain(timeout=30)

before = set(sys.modules)
resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
taken = []

def take():
    while True:
        try:
            taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            return

take()
assert taken

def submit():
    for number in range(1, 3001):
        here["numbers"].submit(Small(number))
        here["faulty"].submit(Small(number))
    for number in range(3001, 3021):
        here["numbers"].submit(Large(number, "text", np.zeros(300_000)))
    here["numbers"].submit_batch({"number": range(3021, 6001)}, schema=Small)
    here["numbers"].submit(Small(6001), attrs={"hop": 1})

submitting = threading.Thread(target=submit)
submitting.start()
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end and (submitting.is_alive() or here.stats()["kept"]["in"] < 6000):
    time.sleep(0.05)
time.sleep(0.3)
take()  # those that a connection gave back meanwhile
try:
    there["match"].subscribe("number > 5")
except ev.FlowError as error:
    # One that a socket has closed may be left.
    assert "subscriptions cannot be used" in str(error) and "ulimit -n" in str(error), error
late = set(sys.modules) - before
assert here.failure is None and there.failure is None, (here.failure, there.failure)
for file in taken:
    os.close(file)
submitting.join()
there["match"].subscribe("number > 5")
here.drain(timeout=60)
there.drain(timeout=60)
first = 0 if sys.argv[2] == "after the first events" else 1
assert seen == list(range(first, 6002)), len(seen)
assert sorted(handled) == seen
expected = len(seen)
assert here.stats()["kept"]["in"] == here.stats()["kept"]["queued"] == expected, here.stats()["kept"]
rows = [n for n in seen if not 3001 <= n <= 3020]
assert there.stats()["rows"]["in"] >= len(rows), there.stats()["rows"]
assert there.stats()["rows"]["queued"] in (len(rows), expected), there.stats()["rows"]
faults = [letter for letter in here.dead_letters() if letter.stone == "failing"]
assert len(faults) == 3000, len(faults)
letters = [*here.dead_letters(), *there.dead_letters()]
others = {(letter.stone, letter.reason) for letter in letters if letter.stone not in ("failing", "rows")}
assert not others, others
assert not late, sorted(late)
here.close()
there.close()
print("all there")
"""


@pytest.mark.parametrize("moment", ["before the first events", "after the first events"])
def test_a_flow_goes_on_when_there_are_files_again(tmp_path: Path, moment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), moment, "2"],
        capture_output=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "all there\n"), done.stderr[-4000:]
