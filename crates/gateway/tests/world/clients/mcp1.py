"""The Python SDK `mcp` of the first generation, as a client of the gateway."""

import contextlib

import anyio
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

import story


class Client:
    def __init__(self, session, hello):
        self.session = session
        self.hello = hello

    def version(self):
        return self.hello.protocolVersion

    async def tools(self):
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, name, given, reported=None):
        result = await self.session.call_tool(name, given, progress_callback=reported)
        return {"error": result.isError, "text": result.content[0].text}

    async def take_back(self):
        # The SDK leaves this to its user: the newest request is the one that runs.
        newest = self.session._request_id - 1
        params = types.CancelledNotificationParams(requestId=newest, reason="enough")
        notification = types.CancelledNotification(method="notifications/cancelled", params=params)
        await self.session.send_notification(types.ClientNotification(notification))

    async def resources(self):
        return [str(each.uri) for each in (await self.session.list_resources()).resources]

    async def resource(self, uri):
        return (await self.session.read_resource(uri)).contents[0].text

    async def prompts(self):
        return [prompt.name for prompt in (await self.session.list_prompts()).prompts]

    async def prompt(self, name, given):
        return (await self.session.get_prompt(name, given)).messages[0].content.text


async def elicited(_, params):
    return types.ElicitResult(action="accept", content=story.elicited(params.message))


async def sampled(_, params):
    said = types.TextContent(type="text", text=story.sampled(params.messages[0].content.text))
    return types.CreateMessageResult(role="assistant", model="scripted", content=said)


async def roots(_):
    return types.ListRootsResult(roots=[types.Root(uri=story.ROOT, name="ours")])


# With these it declares that it can be asked.
ANSWERS = {"elicitation_callback": elicited, "sampling_callback": sampled, "list_roots_callback": roots}


@contextlib.asynccontextmanager
async def streams(how, rest):
    if how == "http":
        url, key = rest
        headers = {"Authorization": f"Bearer {key}"}
        async with streamablehttp_client(url, headers=headers) as (read, write, _):
            yield read, write
    elif how == "sse":
        url, key = rest
        async with sse_client(url, headers={"Authorization": f"Bearer {key}"}) as (read, write):
            yield read, write
    else:
        async with stdio_client(StdioServerParameters(command=rest[0], args=rest[1:])) as (read, write):
            yield read, write


async def main():
    _, how, rest = story.arguments()
    async with streams(how, rest) as (read, write):
        async with ClientSession(read, write, **(ANSWERS if story.ASKS else {})) as session:
            await story.tell(Client(session, await session.initialize()))


anyio.run(main)
