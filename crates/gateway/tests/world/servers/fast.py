"""A server made with `fastmcp` whose tools ask their client: `fast.py stdio`, or `fast.py http PORT`.

What it offers has the names that `clients/story.py` uses when it is asked.
"""

import sys
from dataclasses import dataclass

import anyio
from fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent

server = FastMCP("fast")


@dataclass
class Answer:
    answer: str


@server.tool
async def slow(ms: int, progress: int, ctx: Context) -> str:
    """Takes its time, and tells how far it is."""
    for step in range(progress):
        await ctx.report_progress(step + 1, progress)
        await anyio.sleep(ms / progress / 1000)
    return f"slept {ms} ms"


@server.tool
async def elicit(text: str, ctx: Context) -> str:
    """Asks the user."""
    return (await ctx.elicit(text, response_type=Answer)).data.answer


@server.tool
async def sample(text: str, ctx: Context) -> str:
    """Asks the client's model."""
    asked = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return (await ctx.session.create_message(messages=[asked], max_tokens=100)).content.text


@server.tool
async def roots(ctx: Context) -> str:
    """Asks for the client's folders."""
    return ",".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


how, *port = sys.argv[1:]
if how == "stdio":
    server.run(transport="stdio", show_banner=False)
else:
    server.run(transport="http", host="127.0.0.1", port=int(port[0]), show_banner=False)
