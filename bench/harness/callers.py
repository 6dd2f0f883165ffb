"""Connections that call what may never answer. Their errors are expected; calls given up on are counted."""

import http.client
import json
import threading

PROTOCOL = "2025-06-18"
INITIALIZE = {"method": "initialize", "id": 0, "params": {
    "protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "callers", "version": "1"}}}


class Callers:
    """So many connections, each with one call at a time; one that breaks is opened again after the rest."""

    def __init__(self, count: int, port: int, tool: str, patience: float, rest: float, key: str | None = None):
        self.port, self.patience, self.rest = port, patience, rest
        self.call = {"method": "tools/call", "id": 1, "params": {"name": tool, "arguments": {"text": "hello"}}}
        self.headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
        self.given_up, self.lock, self.over = 0, threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self.keep_calling, daemon=True) for _ in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()  # within the patience

    def keep_calling(self) -> None:
        while not self.over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.patience)
            try:
                self.converse(connection)
            except TimeoutError:
                with self.lock:
                    self.given_up += 1
            except (OSError, http.client.HTTPException):
                pass  # a bad neighbour is as likely gone
            finally:
                connection.close()
            self.over.wait(self.rest)

    def converse(self, connection: http.client.HTTPConnection) -> None:
        """Shakes hands and calls until it is over or the connection breaks; what is answered does not matter."""
        hello = self.send(connection, INITIALIZE, {})
        session = {"Mcp-Protocol-Version": PROTOCOL, "Mcp-Session-Id": hello.getheader("Mcp-Session-Id", "")}
        self.send(connection, {"method": "notifications/initialized"}, session)
        while not self.over.is_set():
            self.send(connection, self.call, session)
            self.over.wait(self.rest)

    def send(self, connection: http.client.HTTPConnection, message: dict, session: dict) -> http.client.HTTPResponse:
        body = json.dumps({"jsonrpc": "2.0", **message})
        connection.request("POST", "/mcp", body, {**self.headers, **session})
        response = connection.getresponse()
        response.read()
        return response
