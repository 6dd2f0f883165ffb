// A server of the TypeScript SDK: `typescript.mjs FOLDER first|second stdio`, or `... http PORT`.
//
// What it offers has the names that `clients/story.py` uses. It asks its client as the SDK's users do, with
// requests of its own; over HTTP it has sessions for clients of the handshake era, without which nobody
// could be asked. The second generation serves both eras.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

const [folder, generation, how, port] = process.argv.slice(2);
const brought = createRequire(`${folder}/`);
const first = generation === "first";
const z = brought("zod/v4");
const { McpServer } = first
  ? brought("@modelcontextprotocol/sdk/server/mcp.js")
  : brought("@modelcontextprotocol/server");

function build() {
  const server = new McpServer({ name: "typescript", version: "1.0.0" });
  const shape = (given) => (first ? given : z.object(given));
  const tool = (name, given, does) => {
    const said = async (args, context) => {
      return { content: [{ type: "text", text: await does(args, context) }] };
    };
    server.registerTool(name, { description: `Does ${name}.`, inputSchema: shape(given) }, said);
  };
  const text = z.string();
  tool("echo", { text }, ({ text }) => text);
  tool("fail", { message: z.string() }, ({ message }) => {
    throw new Error(message);
  });
  tool("slow", { ms: z.number(), progress: z.number() }, async ({ ms, progress }, context) => {
    const request = first ? { notify: context.sendNotification, ...context } : context.mcpReq;
    const progressToken = request._meta?.progressToken;
    for (let step = 1; step <= progress; step += 1) {
      if (progressToken !== undefined) {
        const params = { progressToken, progress: step, total: progress };
        await request.notify({ method: "notifications/progress", params });
      }
      await sleep(ms / progress, undefined, { signal: request.signal });
    }
    return `slept ${ms} ms`;
  });
  tool("elicit", { text }, async ({ text }) => {
    const properties = { answer: { type: "string" } };
    const requestedSchema = { type: "object", properties, required: ["answer"] };
    const result = await server.server.elicitInput({ mode: "form", message: text, requestedSchema });
    return result.content.answer;
  });
  tool("sample", { text }, async ({ text }) => {
    const messages = [{ role: "user", content: { type: "text", text } }];
    const result = await server.server.createMessage({ messages, maxTokens: 100 });
    return [result.content].flat()[0].text;
  });
  tool("roots", {}, async () => {
    const { roots } = await server.server.listRoots();
    return roots.map((root) => root.uri).join();
  });
  const uri = "test://static-text";
  server.registerResource("text", uri, {}, async () => ({ contents: [{ uri, text: "the static text" }] }));
  server.registerPrompt("with_arguments", { argsSchema: shape({ a: z.string() }) }, ({ a }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Say ${a}.` } }],
  }));
  return server;
}

async function overStdio() {
  if (first) {
    const { StdioServerTransport } = brought("@modelcontextprotocol/sdk/server/stdio.js");
    await build().connect(new StdioServerTransport());
  } else {
    brought("@modelcontextprotocol/server/stdio").serveStdio(build);
  }
}

// Serves clients of the handshake era; each has a session and a server of its own.
function sessions(Transport) {
  const open = new Map();
  return async (request, response, body) => {
    const id = request.headers["mcp-session-id"];
    let transport = open.get(id);
    if (id !== undefined && transport === undefined) {
      response.writeHead(404).end();
      return;
    }
    if (transport === undefined) {
      const created = new Transport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => open.set(id, created),
        onsessionclosed: (id) => open.delete(id),
      });
      await build().connect(created);
      transport = created;
    }
    await transport.handleRequest(request, response, body);
  };
}

function listener() {
  if (first) {
    return sessions(brought("@modelcontextprotocol/sdk/server/streamableHttp.js").StreamableHTTPServerTransport);
  }
  const { createMcpHandler, isLegacyRequest } = brought("@modelcontextprotocol/server");
  const node = brought("@modelcontextprotocol/node");
  const stateless = node.toNodeHandler(createMcpHandler(build, { legacy: "reject" }));
  const handshake = sessions(node.NodeStreamableHTTPServerTransport);
  return async (request, response) => {
    const whole = await node.toWebRequest(request);
    const legacy = await isLegacyRequest(whole);
    const body = request.method === "POST" ? await whole.json().catch(() => undefined) : undefined;
    await (legacy ? handshake : stateless)(request, response, body);
  };
}

if (how === "stdio") {
  await overStdio();
} else {
  const serve = listener();
  const served = (request, response) => {
    serve(request, response).catch((error) => {
      console.error(error);
      response.destroy();
    });
  };
  createServer(served).listen(Number(port), "127.0.0.1");
}
