// What the clients of the TypeScript SDK do with the gateway, told as one JSON document on stdout, as
// `story.py` does for those in Python; its words on the plot hold here too.
//
// Usage: story.mjs FOLDER PLOT GENERATION http|sse URL KEY
//    or: story.mjs FOLDER PLOT GENERATION stdio COMMAND ARGUMENT...
//
// GENERATION is `first` for the SDK of 1.x; `legacy` and `auto` are the two ways in which the second greets.

import { connect } from "./sdk.mjs";

const [folder, written, generation, how, ...rest] = process.argv.slice(2);
const plot = JSON.parse(written);

// What this client says when a server asks; it declares what it can answer.
const ANSWERS = {
  "elicitation/create": ({ message }) => ({ action: "accept", content: { answer: `${message} yes` } }),
  "sampling/createMessage": ({ messages }) => {
    const [asked] = [messages[0].content].flat();
    return { model: "scripted", role: "assistant", content: { type: "text", text: `${asked.text} indeed` } };
  },
  "roots/list": () => ({ roots: [{ uri: "file:///projects/ours", name: "ours" }] }),
};

async function everything(client) {
  const told = { tools: (await client.tools()).map((tool) => tool.name) };
  told.call = await client.call(...plot.call);
  told.error = await client.call(...plot.error);
  const reports = [];
  told.slow = await client.call(...plot.slow, {
    onprogress: ({ progress, total }) => reports.push([progress, total]),
  });
  told.progress = reports;
  told.cancel = await cancel(client);
  told.resources = await client.resources();
  told.resource = await client.resource(plot.resource);
  told.prompts = await client.prompts();
  told.prompt = await client.prompt(...plot.prompt);
  told.again = await client.call(...plot.call);
  return told;
}

// Cancels a call of a minute as soon as it is known to run.
async function cancel(client) {
  const enough = new AbortController();
  const call = client.call(...plot.long, { onprogress: () => enough.abort("enough"), signal: enough.signal });
  const ended = await call.catch(() => undefined);
  return enough.signal.aborted && ended === undefined ? "taken back" : ended;
}

// Has the server's tools ask this client, one after the other and several at once.
async function asked(client) {
  const { elicit, sample, roots, slow } = plot.asks;
  const told = { roots: await client.call(roots, {}) };
  told.elicit = await client.call(elicit, { text: "one?" });
  told.sample = await client.call(sample, { text: "two" });
  const several = ["1?", "2?", "3?", "4?"].map((text) => client.call(elicit, { text }));
  told.several = await Promise.all(several);
  told.parallel = await mostAtOnce(client, slow, 8);
  return told;
}

// Makes slow calls at once; returns how many of them the server worked on at the same time.
async function mostAtOnce(client, slow, count) {
  let running = 0;
  let most = 0;
  const one = async () => {
    let begun = 0;
    const onprogress = () => {
      running += begun ? 0 : 1;
      begun = 1;
      most = Math.max(most, running);
    };
    await client.call(slow, { ms: 1000, progress: 2 }, { onprogress });
    running -= begun;
  };
  await Promise.all(Array.from({ length: count }, one));
  return most;
}

async function definitions(client) {
  return { definitions: await client.tools() };
}

const tell = plot.asks ? asked : plot.definitions ? definitions : everything;
const client = await connect({ folder, generation, how, rest, answers: plot.asks ? ANSWERS : {} });
const told = await tell(client);
console.log(JSON.stringify({ version: client.version(), ...told }));
await client.close();
