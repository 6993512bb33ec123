// Answers every request with a few bytes: `server.mjs PORT`, for Node, Deno and Bun.
import { createServer } from 'node:http';
import process from 'node:process';

const port = Number(process.argv[2]);

createServer((request, response) => {
  response.setHeader('content-type', 'text/plain');
  response.end('Hello, World!\n');
}).listen(port, '127.0.0.1', () => console.error(`listening on 127.0.0.1:${port}`));
