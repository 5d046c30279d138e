"""An agent without a library: JSON-RPC over sockets that it closes after each number of bytes."""
import json
import socket
import sys

host, port = sys.argv[1].split(":")
HEADERS = ("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
           "Accept: application/json, text/event-stream\r\nX-Agent-ID: agent\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n")


def call(key, ident, limit=None):
    """Sends a call, and returns what it has read: all, or limit bytes."""
    body = json.dumps({"jsonrpc": "2.0", "id": ident, "method": "tools/call",
                       "params": {"name": "order", "arguments": {"sku": "tea"}, "_meta": {"progressToken": ident}}}).encode()
    with socket.create_connection((host, int(port))) as s:
        s.sendall((HEADERS % (sys.argv[1], key, len(body))).encode() + body)
        got = b""
        while limit is None or len(got) < limit:
            part = s.recv(65536 if limit is None else limit - len(got))
            if not part:
                return got, True
            got += part
    return got, False


def response(got):
    """Returns the response of an answer in chunks or with a length, as JSON or as events."""
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), got
    if b"chunked" in head.lower():
        whole = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            n = int(size, 16)
            whole, body = whole + body[:n], body[n + 2:]
        body = whole
    for line in body.splitlines():
        if line.startswith(b"data: ") and b'"result"' in line:
            return json.loads(line[6:])
    return json.loads(body)


cut, lost, whole = 0, 0, False
while not whole:
    key = "python-%d" % cut
    got, whole = call(key, "first-%d" % cut, cut)
    lost += not whole
    ident = "zweite \u00fc-%d" % cut
    again = response(call(key, ident)[0])
    assert again["id"] == ident, again
    assert again["result"]["content"][0]["text"] == "order %d" % (cut + 1), again
    cut += 1
print("%d keys, %d answers lost" % (cut, lost))
