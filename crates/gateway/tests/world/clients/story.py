"""What every Python client does with the gateway, told as one JSON document on stdout.

What is called, read and got is the plot, which comes as the first argument: names and what they are
given. A client is anything with the methods used here. Nothing waits for a time: the long call is taken
back when its first report of progress has come.
"""

import json
import sys

import anyio

PLOT = json.loads(sys.argv[1])


def arguments():
    """Reads `PLOT MODE http URL KEY` or `PLOT MODE stdio COMMAND ARGUMENT...`, but for the plot."""
    mode, how, *rest = sys.argv[2:]
    return mode, how, rest


async def tell(client):
    told = {"version": client.version()}
    told["tools"] = await client.tools()
    told["call"] = await client.call(*PLOT["call"])
    told["error"] = await client.call(*PLOT["error"])
    reports = []

    async def reported(progress, total, message=None):
        reports.append([progress, total])

    told["slow"] = await client.call(*PLOT["slow"], reported)
    # A client may hand on what it hears beside the answer: the last report may come a moment later.
    with anyio.move_on_after(10):
        while not reports or reports[-1][0] < reports[-1][1]:
            await anyio.sleep(0.01)
    told["progress"] = reports
    told["cancel"] = await cancel(client)
    told["resources"] = await client.resources()
    told["resource"] = await client.resource(PLOT["resource"])
    told["prompts"] = await client.prompts()
    told["prompt"] = await client.prompt(*PLOT["prompt"])
    told["again"] = await client.call(*PLOT["call"])
    print(json.dumps(told))


async def cancel(client):
    """Takes a call of a minute back as soon as it is known to run."""
    running = anyio.Event()
    ended = []

    async def reported(progress, total, message=None):
        running.set()

    async def call():
        ended.append(await client.call(*PLOT["long"], reported))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await running.wait()
            await client.take_back()
            group.cancel_scope.cancel()
    return "taken back" if not ended else ended
