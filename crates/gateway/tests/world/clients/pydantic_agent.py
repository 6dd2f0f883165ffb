"""Pydantic AI as a client: the gateway's tools as tools of an agent's.

Usage: pydantic_agent.py WANTED http|sse URL KEY, as `adk.py`.
"""

import asyncio
import json
import sys

from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import FunctionModel

# What the model wants, in this order.
WANTED = json.loads(sys.argv[1])
OFFERED = []


def scripted(messages, info):
    """Asks for what is wanted, then tells what it was answered."""
    OFFERED[:] = sorted(tool.name for tool in info.function_tools)
    parts = [part for message in messages for part in message.parts]
    answers = [part for part in parts if isinstance(part, ToolReturnPart)]
    if len(answers) < len(WANTED):
        return ModelResponse(parts=[ToolCallPart(*WANTED[len(answers)])])
    told = [
        {
            "name": part.tool_name,
            "error": part.outcome != "success",
            "text": part.content,
        }
        for part in answers
    ]
    return ModelResponse(parts=[TextPart(json.dumps(told))])


async def main():
    how, url, key = sys.argv[2:]
    transport = {"http": StreamableHttpTransport, "sse": SSETransport}[how]
    tools = MCPToolset(transport(url, headers={"Authorization": f"Bearer {key}"}))
    agent = Agent(FunctionModel(scripted), toolsets=[tools])
    async with agent:
        said = (await agent.run("go")).output
    print(json.dumps({"offered": OFFERED, "answers": json.loads(said)}))


asyncio.run(main())
