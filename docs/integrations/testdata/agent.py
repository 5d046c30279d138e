"""An agent without a library: JSON-RPC over sockets.

agent.py HOST:PORT KEY N calls N times at once, and prints the text of each answer or error.
"""
import concurrent.futures
import json
import socket
import sys

host, port = sys.argv[1].split(":")
HEADERS = ("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
           "Accept: application/json, text/event-stream\r\nX-Agent-ID: agent\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n")


def call(key, ident):
    """Sends a call, and returns what it has read."""
    body = json.dumps({"jsonrpc": "2.0", "id": ident, "method": "tools/call",
                       "params": {"name": "order", "arguments": {"sku": "tea", "idempotency_key": key},
                                  "_meta": {"progressToken": ident}}}).encode()
    with socket.create_connection((host, int(port))) as s:
        s.sendall((HEADERS % (sys.argv[1], key, len(body))).encode() + body)
        got = b""
        while part := s.recv(65536):
            got += part
    return got


def text(got, ident):
    """Returns the text of an answer in chunks or with a length, as JSON or as events."""
    head, _, body = got.partition(b"\r\n\r\n")
    if b"chunked" in head.lower():
        whole = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            n = int(size, 16)
            whole, body = whole + body[:n], body[n + 2:]
        body = whole
    for line in body.splitlines():
        if line.startswith(b"data: ") and b'"result"' in line:
            body = line[6:]
    response = json.loads(body)
    assert response["id"] == ident, response
    if "error" in response:
        return response["error"]["message"]
    return response["result"]["content"][0]["text"]


def once(key, ident):
    try:
        got = call(key, ident)
    except OSError as lost:
        return "lost: %s" % lost
    return text(got, ident) if got else "lost"


key, n = sys.argv[2], int(sys.argv[3])
with concurrent.futures.ThreadPoolExecutor(n) as pool:
    print(*pool.map(lambda i: once(key, "call \u00fc-%d" % i), range(n)), sep="\n")
