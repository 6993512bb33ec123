// The paths of tests/tests/programs.rs for Node, Deno and Bun, on what each calls its own server.
import { readFile } from 'node:fs/promises';
import crypto from 'node:crypto';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { spawn } from 'node:child_process';
import dns from 'node:dns/promises';

const port = Number(process.env.PORT ?? 8000);
const here = process.env.HERE ?? '/srv';
let count = 0;

const sleep = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));
const sha256 = data => crypto.createHash('sha256').update(data).digest('hex');

async function* numbers() {
  for (let number = 0; number < 3; number++) {
    yield new TextEncoder().encode(`${number}\n`);
    await sleep(2);
  }
}

const paths = {
  '/counter': () => `${++count}`,
  '/timer': async () => {
    let ticks = 0;
    const interval = setInterval(() => ticks++, 1);
    while (ticks < 3) await sleep(1);
    clearInterval(interval);
    await new Promise(resolve => setImmediate(resolve));
    return 'three ticks';
  },
  '/file': async () => {
    const files = Array.from({ length: 8 }, () => readFile(`${here}/data`));
    return sha256(Buffer.concat(await Promise.all(files)));
  },
  '/hash': async () => {
    const [derived, scrypted] = await Promise.all([
      promisify(crypto.pbkdf2)('password', 'salt', 1000, 32, 'sha256'),
      promisify(crypto.scrypt)('password', 'salt', 32, { N: 1024 }),
    ]);
    const { publicKey, privateKey } = crypto.generateKeyPairSync('ed25519');
    const message = Buffer.from('message');
    const signed = crypto.verify(null, message, publicKey, crypto.sign(null, message, privateKey));
    return [sha256('abc'), derived.toString('hex'), scrypted.toString('hex'), signed].join(' ');
  },
  '/worker': () => new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./worker.mjs', import.meta.url), { workerData: 100 });
    worker.on('message', sum => resolve(`${sum}`));
    worker.on('error', reject);
  }),
  '/echo': body => body,
  '/stream': () => numbers(),
  '/throw': () => { throw new Error('as asked'); },
  '/exit': () => process.exit(3),
  '/spin': () => { for (;;); },
  '/bomb': () => {
    const kept = [];
    for (;;) kept.push(new Uint8Array(1 << 20).fill(1));
  },
  '/fork': () => new Promise(resolve => {
    try {
      const child = spawn('/bin/true');
      child.on('error', () => resolve('refused'));
      child.on('exit', code => resolve(`left with ${code}`));
    } catch {
      resolve('refused');
    }
  }),
  '/dns': () => dns.lookup('example.com').then(() => 'found', () => 'not found'),
};

// What a path answers: text, bytes, or pieces one after the other.
async function answer(path, body) {
  const handler = paths[path];
  return handler ? await handler(body) : 'no such path';
}

if (globalThis.Deno || globalThis.Bun) {
  const fetch = async request => {
    const body = new Uint8Array(await request.arrayBuffer());
    const answered = await answer(new URL(request.url).pathname, body);
    const isStream = answered[Symbol.asyncIterator];
    return new Response(isStream ? ReadableStream.from(answered) : answered);
  };
  const error = () => new Response('failed', { status: 500 });
  if (globalThis.Deno) Deno.serve({ port, hostname: '127.0.0.1', onError: error }, fetch);
  else Bun.serve({ port, hostname: '127.0.0.1', fetch, error, maxRequestBodySize: 64 << 20 });
} else {
  const http = await import('node:http');
  http.createServer(async (request, response) => {
    try {
      const pieces = [];
      for await (const piece of request) pieces.push(piece);
      const answered = await answer(request.url, Buffer.concat(pieces));
      if (answered[Symbol.asyncIterator]) {
        for await (const piece of answered) response.write(piece);
        response.end();
      } else {
        response.end(answered);
      }
    } catch {
      response.statusCode = 500;
      response.end('failed');
    }
  }).listen(port, '127.0.0.1');
}
