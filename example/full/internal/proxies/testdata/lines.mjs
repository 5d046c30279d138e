// Reads requests, one a line: an address, a key, a body and a time to work. Writes the key, the
// status and the first line of the last answer to each, which post returns.
import { createInterface } from 'node:readline';

export function serve(post) {
  createInterface({ input: process.stdin }).on('line', async (line) => {
    const [url, key, body, work] = line.split('\t');
    const headers = { 'content-type': 'text/plain', 'idempotency-key': key, 'x-work': work };
    let status = 0, text;
    try {
      [status, text] = await post(url, headers, body);
    } catch (err) {
      text = String(err);
    }
    process.stdout.write(`${[key, status, text.replaceAll('\n', ' ')].join('\t')}\n`);
  });
}
