"""A server of the Python SDK `mcp` of the second generation: `remote.py sse|streamable-http PORT`.

What it offers has the names that `clients/story.py` uses.
"""

import sys

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("python")


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


@server.resource("test://static-text")
def text() -> str:
    return "the static text"


@server.prompt()
def with_arguments(a: str) -> str:
    return f"Say {a}."


transport, port = sys.argv[1:]
server.run(transport=transport, host="127.0.0.1", port=int(port))
