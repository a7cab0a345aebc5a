"""Location publish/subscribe: who waits for a taxi is told of free ones nearby, in asyncio.

Usually there are several hosts of tiles, each a process: ``evflow node a --allow evflow.tiles.stone``. Here
is one, in this process. ``evflow tiles map`` would show it.
"""

import asyncio
import tempfile

import evflow as ev
from evflow import tiles

ANNA, BEN = 1, 2
TAXI_7, TAXI_8 = 7, 8
NAMES = {ANNA: "Anna", BEN: "Ben"}


async def wait_for_taxis(client: tiles.Connection) -> None:
    """Prints matches until both have a taxi."""
    waiting = set(NAMES)
    async for match in client:
        print(f"{NAMES[int(match['sub'])]}: taxi {match['pub']} is near")
        waiting.discard(int(match["sub"]))
        if not waiting:
            return


async def drive(client: tiles.Connection) -> None:
    """Moves two taxis to where people wait; only one of them is free."""
    here = [(46.52, 6.60, 5), (46.52, 6.61, 5)]  # latitude, longitude, metres
    await asyncio.to_thread(client.publish, TAXI_7, here[0], {"is free": True})
    await asyncio.to_thread(client.publish, TAXI_8, here[1], {"is free": False})
    for place in ((46.525, 6.63, 5), (46.53, 6.63, 5), (46.54, 6.64, 5)):
        await asyncio.to_thread(client.move, [TAXI_7, TAXI_8], [place, place])


async def main(contact: str) -> None:
    with tiles.connect(contact) as people, tiles.connect(contact) as taxis:
        zones = [(46.53, 6.63, 200), (46.54, 6.64, 200)]
        await asyncio.to_thread(people.subscribe, [ANNA, BEN], zones, {"is free": True})
        await asyncio.to_thread(people.drain, 10)
        await asyncio.wait_for(asyncio.gather(wait_for_taxis(people), drive(taxis)), 60)


with (
    tempfile.TemporaryDirectory() as folder,
    ev.Daemon("a", "tcp://127.0.0.1:0", storage=folder, handlers=["evflow.tiles.stone"]) as a,
    tiles.graph(["a"]).deploy({"a": a.contact}),
):
    asyncio.run(main(f"{a.contact}/tiles/a"))
