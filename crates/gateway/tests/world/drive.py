"""The client that the conformance suites judge: Gantry, with the server under this URL behind it.

usage: drive.py GANTRY URL

Starts a gateway in a folder of its own with one remote server, and uses what that offers as a client
of the gateway would: lists everything, calls every tool, reads every resource, gets every prompt, and
answers what it is asked with the defaults of the form. Where the server wants a sign-in, it plays the
person and the browser.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
PATIENCE = 20
# What needs a client that can be asked.
ASKING = ("elicitation-sep1034-client-defaults", "sep-2322-client-request-state")
# How often a person signs in before they have had enough.
SIGN_INS = 4
# Where the suites say that the client describes itself.
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"


class Client:
    """A client of the handshake era at the endpoint of one server."""

    def __init__(self, url, key):
        self.url, self.key, self.session, self.count = url, key, None, 0
        info = {"name": "drive", "version": "1"}
        capabilities = {"elicitation": {}} if SCENARIO in ASKING else {}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        self.ask("initialize", params)
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).close()

    def post(self, message):
        headers = {
            "Authorization": "Bearer " + self.key,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        if self.session:
            headers["Mcp-Session-Id"] = self.session
            headers["MCP-Protocol-Version"] = "2025-11-25"
        body = json.dumps(message).encode()
        request = urllib.request.Request(self.url, body, headers)
        try:
            answer = urllib.request.urlopen(request, timeout=2 * PATIENCE)
        except urllib.error.HTTPError as error:
            return error
        self.session = answer.headers.get("Mcp-Session-Id") or self.session
        return answer

    def ask(self, method, params=None):
        """Sends a request and returns its answer; what is asked meanwhile is answered."""
        self.count += 1
        request = {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params or {}}
        answer = self.post(request)
        kind = answer.headers.get("Content-Type", "")
        if not kind.startswith("text/event-stream"):
            return json.loads(answer.read())
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            message = json.loads(line[6:])
            if message.get("method") == "elicitation/create":
                result = {"action": "accept", "content": filled(message["params"])}
                self.post({"jsonrpc": "2.0", "id": message["id"], "result": result}).close()
            elif message.get("id") == self.count and "method" not in message:
                return message
        raise SystemExit("the stream ended without an answer")

    def list(self, what, method):
        return self.ask(method).get("result", {}).get(what, [])


def filled(params):
    """Fills in a form: defaults where there are, and yes where that is asked."""
    fields = params.get("requestedSchema", {}).get("properties", {})
    content = {}
    for name, field in fields.items():
        if "default" in field:
            content[name] = field["default"]
        elif field.get("type") == "boolean":
            content[name] = True
    return content


def use(client):
    tools = client.list("tools", "tools/list")
    print("tools:", [tool["name"] for tool in tools], file=sys.stderr)
    if SCENARIO == "json-schema-ref-no-deref":
        return
    if SCENARIO == "json-schema-2020-12-preservation":
        schema = next(t["inputSchema"] for t in tools if t["name"] == "json_schema_2020_12_tool")
        calls = [{"name": "json_schema_echo", "arguments": {"schema": schema}}]
    elif "toolCalls" in CONTEXT:
        calls = CONTEXT["toolCalls"]
    else:
        calls = [{"name": tool["name"], "arguments": arguments(tool)} for tool in tools]
    for call in calls:
        # What is null is left out, as the schemas of the tools want it.
        given = {name: value for name, value in call["arguments"].items() if value is not None}
        call = {"name": call["name"], "arguments": given}
        print("call", call["name"], client.ask("tools/call", call), file=sys.stderr)
    for resource in client.list("resources", "resources/list"):
        client.ask("resources/read", {"uri": resource["uri"]})
    for prompt in client.list("prompts", "prompts/list"):
        client.ask("prompts/get", {"name": prompt["name"]})


def arguments(tool):
    """Returns arguments that fit the few tools of the suites."""
    values = {"number": 2, "integer": 2, "boolean": True, "string": "text", "object": {}, "array": []}
    schema = tool.get("inputSchema", {})
    fields = schema.get("properties", {})
    wanted = schema.get("required", []) or [name for name in fields if name in ("a", "b")]
    return {name: values.get(fields.get(name, {}).get("type"), "text") for name in wanted}


class Gateway:
    """A gateway with the judged server behind it, as its administrator sees it."""

    def __init__(self, data):
        self.url = wait(lambda: json.load(open(os.path.join(data, "gateway.json"))))["url"]
        self.keys = {}
        for name in ("admin", "agent"):
            with open(os.path.join(data, "keys", name + ".key")) as file:
                self.keys[name] = file.read().strip()

    def admin(self, method, path):
        url = self.url + "/api/v1/mcp/servers/judged" + path
        headers = {"Authorization": "Bearer " + self.keys["admin"]}
        asked = urllib.request.Request(url, headers=headers, method=method)
        return json.load(urllib.request.urlopen(asked, timeout=PATIENCE))

    def settled(self, after=None):
        """Waits until the server is ready or a person must sign in; with a moment, anew after that."""

        def state():
            found = self.admin("GET", "")
            done = found["state"] in ("ready", "needs_sign_in") and found["since_ms"] != after
            return found if done else None

        return wait(state)

    def sign_in(self):
        """Plays the person and the browser: follows the link to its end."""
        link = self.admin("POST", "/auth")["link"]
        with urllib.request.urlopen(link, timeout=PATIENCE) as page:
            print("signed in:", page.status, page.url.split("?")[0], file=sys.stderr)

    def client(self):
        return Client(self.url + "/mcp/servers/judged", self.keys["agent"])


def signed_in(gateway):
    """Signs in when that is needed, and again when more is needed; gives up after a few times."""
    found = gateway.settled()
    for _ in range(SIGN_INS):
        if found["state"] == "needs_sign_in":
            gateway.sign_in()
            # Who is signed in is connected to anew.
            found = gateway.settled(after=found["since_ms"])
            continue
        if not wants_more(gateway.client()):
            return
        gateway.sign_in()
        found = gateway.settled()


def wants_more(client):
    """Calls the tool; tells whether the answer is that somebody must sign in first."""
    client.list("tools", "tools/list")
    answer = client.ask("tools/call", {"name": "test-tool", "arguments": {}})
    code = answer.get("error", {}).get("data", {}).get("code", "")
    print("call:", answer, file=sys.stderr)
    return code.startswith("sign_in.")


def entry(url):
    entry = {"url": url, "start": "eager"}
    if SCENARIO.startswith("auth/"):
        entry["auth"] = {"client_metadata_url": CLIENT_METADATA}
    if "client_id" in CONTEXT:
        entry["auth"] = {key: CONTEXT[key] for key in ("client_id", "client_secret") if key in CONTEXT}
    if SCENARIO == "auth/client-credentials-basic":
        entry["auth"]["kind"] = "client_credentials"
    return entry


def main(gantry, url):
    with tempfile.TemporaryDirectory() as home:
        config = os.path.join(home, "mcp.json")
        with open(config, "w") as file:
            json.dump({"mcpServers": {"judged": entry(url)}}, file)
        data = os.path.join(home, "data")
        command = [gantry, "up", "--port", "0", "--data", data, "--config", config]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        try:
            gateway = Gateway(data)
            if SCENARIO.startswith("auth/"):
                signed_in(gateway)
            else:
                gateway.settled()
                use(gateway.client())
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


def wait(what):
    until = time.monotonic() + PATIENCE
    while True:
        try:
            found = what()
            if found is not None:
                return found
        except (OSError, ValueError):
            pass
        if time.monotonic() > until:
            raise SystemExit("nothing after %d s" % PATIENCE)
        time.sleep(0.05)


main(*sys.argv[1:3])
