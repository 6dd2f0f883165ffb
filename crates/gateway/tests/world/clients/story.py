"""What every Python client does with the gateway, told as one JSON document on stdout.

The peer behind the gateway is called `a`. A client is anything with the methods used here. Nothing
waits for a time: the long call is taken back when its first report of progress has come.
"""

import json
import sys

import anyio


def arguments():
    """Reads `MODE http URL KEY` or `MODE stdio COMMAND ARGUMENT...`."""
    mode, how, *rest = sys.argv[1:]
    return mode, how, rest


async def tell(client):
    told = {"version": client.version()}
    told["tools"] = await client.tools()
    told["call"] = await client.call("a__echo", {"text": "hello"})
    told["error"] = await client.call("a__fail", {"message": "as asked"})
    reports = []

    async def reported(progress, total, message=None):
        reports.append(progress)

    told["slow"] = await client.call("a__slow", {"ms": 300, "progress": 3}, reported)
    told["progress"] = reports
    told["cancel"] = await cancel(client)
    told["resources"] = await client.resources()
    told["resource"] = await client.resource("test://static-text")
    told["prompts"] = await client.prompts()
    told["prompt"] = await client.prompt("a__with_arguments", {"a": "hello"})
    told["again"] = await client.call("a__echo", {"text": "still here"})
    print(json.dumps(told))


async def cancel(client):
    """Takes a call of a minute back as soon as it is known to run."""
    running = anyio.Event()
    ended = []

    async def reported(progress, total, message=None):
        running.set()

    async def call():
        ended.append(await client.call("a__slow", {"ms": 60000, "progress": 600}, reported))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await running.wait()
            await client.take_back()
            group.cancel_scope.cancel()
    return "taken back" if not ended else ended
