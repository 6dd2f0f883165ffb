// The TypeScript SDK in both generations behind one face: what differs between them is here.

import { createRequire } from "node:module";

// Connects a client of the SDK in `folder`; it declares the capabilities for which it has answers.
export async function connect({ folder, generation, how, rest, answers }) {
  const brought = createRequire(`${folder}/`);
  const sdk = generation === "first" ? first(brought) : second(brought, generation);
  const capabilities = {};
  for (const method of Object.keys(answers)) {
    capabilities[method.split("/")[0]] = {};
  }
  const client = sdk.client({ name: "world", version: "1.0.0" }, capabilities);
  for (const [method, answer] of Object.entries(answers)) {
    sdk.answer(client, method, async (request) => answer(request.params));
  }
  await client.connect(sdk.transport(how, rest));
  return face(client, sdk);
}

function face(client, sdk) {
  return {
    version: () => sdk.version(client),
    tools: () => pages(client, "listTools", "tools"),
    async call(name, given, options) {
      const result = await sdk.call(client, { name, arguments: given }, options);
      return { error: result.isError === true, text: result.content[0].text };
    },
    resources: async () => (await pages(client, "listResources", "resources")).map((each) => each.uri),
    resource: async (uri) => (await client.readResource({ uri })).contents[0].text,
    prompts: async () => (await pages(client, "listPrompts", "prompts")).map((each) => each.name),
    async prompt(name, given) {
      const got = await client.getPrompt({ name, arguments: given });
      return got.messages[0].content.text;
    },
    close: () => client.close(),
  };
}

async function pages(client, method, member) {
  const all = [];
  let cursor;
  do {
    const page = await client[method](cursor ? { cursor } : undefined);
    all.push(...page[member]);
    cursor = page.nextCursor;
  } while (cursor);
  return all;
}

function first(brought) {
  const part = (path) => brought(`@modelcontextprotocol/sdk/${path}`);
  const { Client } = part("client/index.js");
  const types = part("types.js");
  const schemas = {
    "elicitation/create": types.ElicitRequestSchema,
    "sampling/createMessage": types.CreateMessageRequestSchema,
    "roots/list": types.ListRootsRequestSchema,
  };
  let version;
  return {
    client: (info, capabilities) => new Client(info, { capabilities }),
    answer: (client, method, handler) => client.setRequestHandler(schemas[method], handler),
    call: (client, params, options) => client.callTool(params, undefined, options),
    version: () => version,
    transport(how, rest) {
      const transport = transports(how, rest, {
        Http: part("client/streamableHttp.js").StreamableHTTPClientTransport,
        Sse: part("client/sse.js").SSEClientTransport,
        Stdio: part("client/stdio.js").StdioClientTransport,
      });
      // The client tells its transport alone which version it agreed on.
      const told = transport.setProtocolVersion?.bind(transport);
      transport.setProtocolVersion = (agreed) => {
        version = agreed;
        told?.(agreed);
      };
      return transport;
    },
  };
}

function second(brought, mode) {
  const part = brought("@modelcontextprotocol/client");
  return {
    client: (info, capabilities) =>
      new part.Client(info, { capabilities, versionNegotiation: { mode } }),
    answer: (client, method, handler) => client.setRequestHandler(method, handler),
    call: (client, params, options) => client.callTool(params, options),
    version: (client) => client.getNegotiatedProtocolVersion(),
    transport: (how, rest) =>
      transports(how, rest, {
        Http: part.StreamableHTTPClientTransport,
        Sse: part.SSEClientTransport,
        Stdio: brought("@modelcontextprotocol/client/stdio").StdioClientTransport,
      }),
  };
}

function transports(how, rest, { Http, Sse, Stdio }) {
  if (how === "stdio") {
    const [command, ...args] = rest;
    return new Stdio({ command, args });
  }
  const [url, key] = rest;
  const Way = how === "sse" ? Sse : Http;
  return new Way(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${key}` } } });
}
