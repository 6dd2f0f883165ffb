"""The Python SDK `mcp` of the second generation, as a client of the gateway."""

import anyio
import httpx2
import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

import story


class Client:
    def __init__(self, client):
        self.client = client

    def version(self):
        return self.client.protocol_version

    async def tools(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name, given, reported=None):
        result = await self.client.call_tool(name, given, progress_callback=reported)
        return {"error": result.is_error, "text": result.content[0].text}

    async def take_back(self):
        """Nothing to do: leaving the call's scope takes it back."""

    async def resources(self):
        return [str(each.uri) for each in (await self.client.list_resources()).resources]

    async def resource(self, uri):
        return (await self.client.read_resource(uri)).contents[0].text

    async def prompts(self):
        return [prompt.name for prompt in (await self.client.list_prompts()).prompts]

    async def prompt(self, name, given):
        return (await self.client.get_prompt(name, given)).messages[0].content.text


async def main():
    mode, how, rest = story.arguments()
    if how == "http":
        url, key = rest
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
            async with mcp.Client(streamable_http_client(url, http_client=http), mode=mode) as client:
                await story.tell(Client(client))
    else:
        server = stdio_client(StdioServerParameters(command=rest[0], args=rest[1:]))
        async with mcp.Client(server, mode=mode) as client:
            await story.tell(Client(client))


anyio.run(main)
