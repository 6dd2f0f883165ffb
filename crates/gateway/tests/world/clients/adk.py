"""An agent of google-adk whose model is a script: its tools come from the gateway, by McpToolset.

usage: adk.py URL KEY TOOL

The model is offered the tools, calls the one that echoes, and answers with what came back. Prints one JSON line.
"""

import asyncio
import json
import sys

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool.mcp_session_manager import StreamableHTTPConnectionParams
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
from google.genai import types

OFFERED = []


class Scripted(BaseLlm):
    """A model that calls one tool and repeats what it said."""

    async def generate_content_async(self, llm_request, stream=False):
        OFFERED[:] = sorted(llm_request.tools_dict)
        answered = llm_request.contents[-1].parts[-1].function_response
        if answered is None:
            call = types.FunctionCall(name=sys.argv[3], args={"text": "from adk"})
            part = types.Part(function_call=call)
        else:
            part = types.Part(text=json.dumps(answered.response))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def main(url, key):
    headers = {"Authorization": "Bearer " + key}
    toolset = McpToolset(connection_params=StreamableHTTPConnectionParams(url=url, headers=headers))
    tools = {tool.name: tool.description for tool in await toolset.get_tools()}
    agent = LlmAgent(name="scripted", model=Scripted(model="scripted"), tools=[toolset])
    runner = InMemoryRunner(agent=agent, app_name="judge")
    session = await runner.session_service.create_session(app_name="judge", user_id="u")
    question = types.Content(role="user", parts=[types.Part(text="echo, please")])
    said = ""
    run = runner.run_async(user_id="u", session_id=session.id, new_message=question)
    async for event in run:
        for part in event.content.parts if event.content else []:
            said = part.text or said
    await toolset.close()
    print(json.dumps({"tools": sorted(tools), "offered": OFFERED, "said": json.loads(said)}))


asyncio.run(main(*sys.argv[1:3]))
