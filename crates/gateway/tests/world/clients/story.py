"""What every Python client does with the gateway, told as one JSON document on stdout.

What is called, read and got is the plot, which comes as the first argument: names and what they are
given. A client is anything with the methods used here. Nothing waits for a time: the long call is taken
back when its first report of progress has come. A plot with `asks` is another story: the tools that it
names ask their client, which declares that it can be asked.
"""

import json
import sys

import anyio

PLOT = json.loads(sys.argv[1])
ASKS = PLOT.get("asks")
ROOT = "file:///projects/ours"


def elicited(message):
    """Returns what the user says."""
    return {"answer": f"{message} yes"}


def sampled(text):
    """Returns what the model says."""
    return f"{text} indeed"


def arguments():
    """Reads `PLOT MODE http URL KEY` or `PLOT MODE stdio COMMAND ARGUMENT...`, but for the plot."""
    mode, how, *rest = sys.argv[2:]
    return mode, how, rest


async def tell(client):
    told = {"version": client.version()}
    await (asked(client, told) if ASKS else everything(client, told))
    print(json.dumps(told))


async def everything(client, told):
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


async def asked(client, told):
    """Has the server's tools ask this client, one after the other and several at once."""
    told["roots"] = await client.call(ASKS["roots"], {})
    told["elicit"] = await client.call(ASKS["elicit"], {"text": "one?"})
    told["sample"] = await client.call(ASKS["sample"], {"text": "two"})
    several = {}

    async def one(text):
        several[text] = await client.call(ASKS["elicit"], {"text": text})

    async with anyio.create_task_group() as group:
        for text in ("1?", "2?", "3?", "4?"):
            group.start_soon(one, text)
    told["several"] = [several[text] for text in sorted(several)]
    told["parallel"] = await most_at_once(client, 8)


async def most_at_once(client, count):
    """Makes slow calls at once; returns how many of them the server worked on at the same time."""
    running = set()
    most = 0

    async def one(number):
        async def reported(progress, total, message=None):
            nonlocal most
            running.add(number)
            most = max(most, len(running))

        await client.call(ASKS["slow"], {"ms": 1000, "progress": 2}, reported)
        running.discard(number)

    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(one, number)
    return most
