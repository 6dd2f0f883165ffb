// The AI SDK (`ai` with `@ai-sdk/mcp`) as a client: the gateway's tools as tools of an agent's.
//
// Usage: ai.mjs FOLDER WANTED http|sse URL KEY, as `adk.py`.

import { createRequire } from "node:module";

const [folder, written, type, url, key] = process.argv.slice(2);
const brought = createRequire(`${folder}/`);
const { generateText, isStepCount } = brought("ai");
const { createMCPClient } = brought("@ai-sdk/mcp");

// What the model wants, in this order.
const wanted = JSON.parse(written);
const used = { total: undefined };
let offered = [];

// Asks for what is wanted, one after the other.
const model = {
  specificationVersion: "v4",
  provider: "scripted",
  modelId: "scripted",
  supportedUrls: {},
  async doGenerate({ prompt, tools }) {
    offered = tools.map((tool) => tool.name).sort();
    const answered = prompt.filter((message) => message.role === "tool").length;
    const next = wanted[answered];
    const content = next
      ? { type: "tool-call", toolCallId: `call-${answered}`, toolName: next[0], input: JSON.stringify(next[1]) }
      : { type: "text", text: "done" };
    const finishReason = { unified: next ? "tool-calls" : "stop", raw: undefined };
    return { content: [content], finishReason, usage: { inputTokens: used, outputTokens: used }, warnings: [] };
  },
};

const client = await createMCPClient({ transport: { type, url, headers: { Authorization: `Bearer ${key}` } } });
const tools = await client.tools();
const { steps } = await generateText({ model, tools, prompt: "go", stopWhen: isStepCount(wanted.length + 1) });
await client.close();
const results = steps.flatMap((step) => step.toolResults);
const answers = results.map(({ toolName, output }) => ({
  name: toolName,
  error: output.isError === true,
  text: output.content[0].text,
}));
console.log(JSON.stringify({ offered, answers }));
