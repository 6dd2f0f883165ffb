"""`fastmcp` as a client of the gateway."""

import anyio
import fastmcp
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

import story


class Client:
    def __init__(self, client):
        self.client = client

    def version(self):
        return self.client.session.protocol_version

    async def tools(self):
        return [tool.name for tool in await self.client.list_tools()]

    async def call(self, name, given, reported=None):
        result = await self.client.call_tool(
            name, given, progress_handler=reported, raise_on_error=False
        )
        return {"error": result.is_error, "text": result.content[0].text}

    async def take_back(self):
        """Nothing to do: leaving the call's scope takes it back."""

    async def resources(self):
        return [str(each.uri) for each in await self.client.list_resources()]

    async def resource(self, uri):
        return (await self.client.read_resource(uri))[0].text

    async def prompts(self):
        return [prompt.name for prompt in await self.client.list_prompts()]

    async def prompt(self, name, given):
        return (await self.client.get_prompt(name, given)).messages[0].content.text


async def main():
    mode, how, rest = story.arguments()
    if how == "http":
        url, key = rest
        transport = StreamableHttpTransport(url, auth=key)
    else:
        transport = StdioTransport(rest[0], rest[1:], keep_alive=False)
    async with fastmcp.Client(transport, mode=mode) as client:
        await story.tell(Client(client))


anyio.run(main)
