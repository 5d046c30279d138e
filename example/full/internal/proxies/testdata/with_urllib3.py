# Reads requests, one a line: an address, a key, a body and a time to work. Writes the key, the
# status and the first line of the last answer to each.
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import urllib3

retry = urllib3.Retry(total=8, backoff_factor=0.5, allowed_methods=["POST"],
                      status_forcelist=[429, 500, 502, 503, 504], raise_on_status=False)
pool = urllib3.PoolManager(num_pools=100, maxsize=8, retries=retry, timeout=60)
lock = threading.Lock()

def send(url, key, body, work):
    try:
        answer = pool.request("POST", url, body=body, headers={
            "Content-Type": "text/plain", "Idempotency-Key": key, "X-Work": work})
        status, text = answer.status, answer.data.decode(errors="replace")
    except Exception as e:
        status, text = 0, repr(e)
    with lock:
        print(key, status, text.replace("\n", " "), sep="\t", flush=True)

with ThreadPoolExecutor(100) as threads:
    for line in sys.stdin:
        threads.submit(send, *line.rstrip("\n").split("\t"))
