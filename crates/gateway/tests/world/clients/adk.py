"""Google's Agent Development Kit as a client: the gateway's tools as tools of an agent's.

Usage: adk.py WANTED http|sse URL KEY. The model is scripted: it asks for the wanted tools, a JSON list of
names and what they are given, one after the other, and then says what it was answered. What happened is
told as one JSON document on stdout.
"""

import asyncio
import json
import sys

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import (
    McpToolset,
    SseConnectionParams,
    StreamableHTTPConnectionParams,
)
from google.genai import types

# What the model wants, in this order.
WANTED = json.loads(sys.argv[1])


class Scripted(BaseLlm):
    """Asks for what is wanted, then tells what it was answered."""

    offered: list[str] = []

    async def generate_content_async(self, llm_request, stream=False):
        declared = [
            declaration.name
            for tool in llm_request.config.tools
            for declaration in tool.function_declarations
        ]
        self.offered[:] = sorted(declared)
        answers = [
            part.function_response
            for content in llm_request.contents
            for part in content.parts
            if part.function_response
        ]
        if len(answers) < len(WANTED):
            name, given = WANTED[len(answers)]
            part = types.Part.from_function_call(name=name, args=given)
        else:
            told = [
                {
                    "name": each.name,
                    "error": each.response.get("isError") is True,
                    "text": each.response["content"][0]["text"],
                }
                for each in answers
            ]
            part = types.Part.from_text(text=json.dumps(told))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def toolset(how, url, key):
    params = {"http": StreamableHTTPConnectionParams, "sse": SseConnectionParams}[how]
    headers = {"Authorization": f"Bearer {key}"}
    return McpToolset(connection_params=params(url=url, headers=headers, timeout=30))


async def main():
    tools = toolset(*sys.argv[2:])
    model = Scripted(model="scripted")
    agent = LlmAgent(name="agent", model=model, tools=[tools])
    runner = InMemoryRunner(agent=agent, app_name="world")
    session = await runner.session_service.create_session(app_name="world", user_id="u")
    asked = types.Content(role="user", parts=[types.Part.from_text(text="go")])
    said = ""
    async for event in runner.run_async(
        user_id="u", session_id=session.id, new_message=asked
    ):
        for part in event.content.parts if event.content else []:
            said = part.text or said
    kinds = sorted({type(tool).__name__ for tool in await tools.get_tools()})
    await tools.close()
    told = {"offered": model.offered, "kinds": kinds, "answers": json.loads(said)}
    print(json.dumps(told))


asyncio.run(main())
