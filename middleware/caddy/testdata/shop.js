// An order service in Node, behind a gateway. It notes each order in the file ORDERS, which outlives
// it, and then does what X-Do says.
const { createServer } = require('node:http');
const { appendFileSync, existsSync, readFileSync } = require('node:fs');

const file = process.env.ORDERS;
const placed = new Set(existsSync(file) ? readFileSync(file, 'utf8').split('\n') : []);
const place = key => { appendFileSync(file, key + '\n'); placed.add(key); };
const die = () => process.kill(process.pid, 'SIGKILL');

// The answer as bytes, of which a connection that breaks has passed some.
const whole = {
  length: text => `HTTP/1.1 201 Created\r\nContent-Length: ${text.length}\r\n\r\n${text}`,
  chunks: text => `HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`,
};

const server = createServer((req, res) => {
  const key = req.headers['idempotency-key'];
  if (req.method === 'GET') {
    res.end(placed.has(req.url.slice(1)) ? 'placed' : 'not placed');
    return;
  }
  req.resume().on('end', () => {
    const [does, how, at] = (req.headers['x-do'] || 'answers').split(' ');
    if (does === 'fails') {
      res.writeHead(500).end('no');
      return;
    }
    if (does === 'nothing') {
      res.writeHead(201).end();
      return;
    }
    if (does === 'dies' && how === 'before') die();
    place(key);
    const text = 'order ' + key;
    switch (does) {
      case 'answers': res.statusCode = 201; res.end(text); break; // with a length
      case 'chunks': res.writeHead(201); res.write('order '); setTimeout(() => res.end(key), 1); break;
      case 'slow': setTimeout(() => res.writeHead(201).end(text), 100); break;
      case 'streams': res.writeHead(201, { 'X-Accel-Buffering': 'no' }); res.write('order '); setTimeout(() => res.end(key), 1); break;
      case 'hangs': break;
      case 'dies': die(); break;
      case 'cuts': {
        const answer = whole[how](text);
        res.socket.end(answer.slice(0, Number(at) % answer.length), () => res.socket.destroy());
      }
    }
  });
});
server.listen(Number(process.env.PORT), '127.0.0.1');
