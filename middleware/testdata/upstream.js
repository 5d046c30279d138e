// An order service in Node, as one stands behind a gateway. It notes each order in the file
// ORDERS, which outlives it, and then does what X-Do says.
const { createServer } = require('node:http');
const { appendFileSync } = require('node:fs');

const die = () => process.kill(process.pid, 'SIGKILL');
let goOn = () => {};

const then = {
  order: res => { res.statusCode = 201; res.setHeader('Location', '/orders/1'); res.end('order 1'); }, // with a length
  chunks: res => res.writeHead(201, { Location: '/orders/1' }).end('order 1'), // without
  'chunks, later': res => { res.writeHead(201); res.write('order'); setTimeout(() => res.end(' 1'), 10); },
  long: res => { res.writeHead(201); res.write('x'.repeat(2 << 20)); res.end(); },
  fail: res => { res.writeHead(500); res.write('no'); res.end('pe'); },
  dies: die,
  'dies in the middle, with a length': res => { res.writeHead(201, { 'Content-Length': 100 }); res.write('order', die); },
  'dies in the middle, in chunks': res => { res.writeHead(201); res.write('order', die); },
  hangs: () => {},
  'hangs up': res => res.destroy(),
  events: res => {
    res.writeHead(200, { 'Content-Type': 'text/event-stream' });
    res.write('data: 1\n\n');
    goOn = () => res.end('data: 2\n\n');
  },
  unbuffered: res => {
    res.writeHead(200, { 'X-Accel-Buffering': 'no' });
    res.write('half, ');
    goOn = () => res.end('done');
  },
};

const server = createServer((req, res) => {
  if (req.url === '/go-on') {
    goOn();
    res.end();
    return;
  }
  req.resume().on('end', () => {
    appendFileSync(process.env.ORDERS, req.headers['idempotency-key'] + '\n');
    then[req.headers['x-do']](res);
  });
});
server.listen(Number(process.env.PORT), '127.0.0.1', () => console.log(server.address().port));
process.stdin.resume().on('end', () => process.exit()); // the test has ended
