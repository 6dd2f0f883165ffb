// Signs in with the code in the address's fragment, and shows the servers. Text from the gateway only
// ever becomes text nodes.
"use strict";

const TOKEN = "gantry.session";
const status = document.getElementById("session");

function show(text) {
  status.replaceChildren(document.createTextNode(text));
}

async function api(method, path, body) {
  const headers = { "X-Gantry-Session": localStorage.getItem(TOKEN) ?? "" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  const value = text === "" ? null : JSON.parse(text);
  if (!answer.ok) {
    const error = new Error([value?.detail, value?.hint].filter(Boolean).join("; "));
    error.status = answer.status;
    throw error;
  }
  return value;
}

function button(text, act) {
  const made = document.createElement("button");
  made.append(text);
  made.addEventListener("click", act);
  return made;
}

async function signOut() {
  await api("DELETE", "/api/v1/session");
  localStorage.removeItem(TOKEN);
  show("Signed out.");
}

async function start() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code !== null) {
    // The code works once, and has no place in the history.
    history.replaceState(null, "", location.pathname);
    const signedIn = await api("POST", "/api/v1/session", { code });
    localStorage.setItem(TOKEN, signedIn.token);
  }
  if (localStorage.getItem(TOKEN) === null) return;
  const session = await api("GET", "/api/v1/session");
  show(`Signed in as ${session.agent} (${session.role}). `);
  status.append(button("Sign out", signOut));
  if (session.role === "agent") return;
  const servers = await api("GET", "/api/v1/mcp/servers");
  const list = document.createElement("ul");
  for (const server of servers.items) {
    const item = document.createElement("li");
    item.append(`${server.name}: ${server.state}${server.reason ? `, ${server.reason}` : ""}`);
    list.append(item);
  }
  status.append(list);
}

start().catch((error) => {
  // Only then it is of no use any more; a gateway that is busy or restarts is asked again.
  if (error.status === 401) localStorage.removeItem(TOKEN);
  show(`Not signed in: ${error.message}`);
});
