"""A server of the Python SDK that is reached over HTTP.

usage: remote.py sse|streamable-http PORT
"""

import sys

from mcp.server import MCPServer

server = MCPServer("remote")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.resource("note://hello")
def hello() -> str:
    """A note."""
    return "hello from afar"


@server.prompt()
def greet(name: str) -> str:
    """Greets somebody."""
    return "Greet " + name


server.run(transport=sys.argv[1], port=int(sys.argv[2]))
