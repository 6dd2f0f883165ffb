"""A server of the Python SDK `mcp` of the second generation: `remote.py stdio`, or `remote.py
sse|streamable-http PORT`.

What it offers has the names that `clients/story.py` uses.
"""

import sys

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("python")


class Answer(BaseModel):
    answer: str


@server.tool()
def echo(text: str) -> str:
    """Gives back what it was given."""
    return text


@server.tool()
def fail(message: str) -> str:
    """Fails, saying this."""
    raise ToolError(message)


@server.tool()
async def slow(ms: int, progress: int, ctx: Context) -> str:
    """Takes its time, and tells how far it is."""
    for step in range(progress):
        await ctx.report_progress(step + 1, progress)
        await anyio.sleep(ms / progress / 1000)
    return f"slept {ms} ms"


@server.tool()
async def elicit(text: str, ctx: Context) -> str:
    """Asks the user."""
    return (await ctx.elicit(text, Answer)).data.answer


@server.tool()
async def sample(text: str, ctx: Context) -> str:
    """Asks the client's model."""
    asked = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return (await ctx.session.create_message(messages=[asked], max_tokens=100)).content.text


@server.tool()
async def roots(ctx: Context) -> str:
    """Asks for the client's folders."""
    return ",".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


@server.resource("test://static-text")
def text() -> str:
    return "the static text"


@server.prompt()
def with_arguments(a: str) -> str:
    return f"Say {a}."


transport, *port = sys.argv[1:]
if transport == "stdio":
    server.run(transport="stdio")
else:
    server.run(transport=transport, host="127.0.0.1", port=int(port[0]))
