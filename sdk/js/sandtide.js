/**
 * Sandtide for JavaScript: answer HTTP requests by the direct protocol, on Node, Deno and Bun.
 *
 *     import { serve } from 'sandtide';
 *
 *     serve(request => new Response('Hello, World!\n'));
 *
 * The handler gets a `Request` and returns a `Response`, or a promise of one. In a sandbox, every
 * request starts from the state that the program had when it first waited for one: what is done
 * before is done once, and what a request changes is gone with its answer (unless the tenant has
 * `isolation = "none"`).
 *
 * Run as an ordinary program, it serves plain HTTP on 127.0.0.1 and port $PORT (8000 if unset).
 */
import * as fs from 'node:fs';
import process from 'node:process';

const FILES = '/sandtide/';

// Kinds of messages.
const RESPOND = 2;
const BEGIN = 3;
const WRITE = 4;
const FINISH = 5;
const INFORM = 9;
const HEAD = 16;
const LONGEST_MESSAGE = 1 << 20;

// The request block.
const BODY_COMPLETE = 1;
const HTTP_1_0 = 8;
const HTTP_2 = 16;
const UNKNOWN_LENGTH = 0xffffffffffffffffn;
const FIXED = 104;
const FIELD = 16;

const PIECE = 64 << 10;
const NOTHING = new Uint8Array(0);

const latin1 = new TextDecoder('latin1');
const utf8 = new TextEncoder();

/**
 * How long others may be busy before a request is waited for beside them: so many times so many
 * milliseconds. A loop that has nothing to do says so after the first at the latest.
 */
const GRACE = 50;
const PATIENCE = 3;

const contexts = new WeakMap();

/** Whether this process runs in a sandbox of Sandtide. */
export const inSandbox = fs.existsSync(FILES + 'requests');

/**
 * Answers requests with what `handler(request)` returns. What it throws is told on standard error,
 * and the answer is 500.
 */
export function serve(handler) {
  if (typeof handler !== 'function') {
    throw new TypeError('serve takes a function of a request');
  }
  if (inSandbox) {
    new Sandbox(handler).begin();
  } else {
    serveOutside(handler);
  }
}

/** What a request has beside what the platform's `Request` can hold: see `Context`. */
export function context(request) {
  const found = contexts.get(request);
  if (!found) {
    throw new TypeError('not a request that a handler of `serve` was given');
  }
  return found;
}

/** What is said of a request, and can be done for it, beside the `Request`. */
class Context {
  #sandbox;

  constructor(sandbox, block) {
    this.#sandbox = sandbox;
    /** The correlation id, as in the server's log. */
    this.id = block.id;
    /** Real time, nanoseconds since 1970. */
    this.timeNs = block.timeNs;
    /** 32 bytes that no other request has. */
    this.random = block.random;
    /** Path and query as the client sent them. */
    this.target = block.target;
    /** The headers as pairs, duplicates apart, in their order. */
    this.rawHeaders = block.headers;
    /** `1.0`, `1.1` or `2`. */
    this.httpVersion = block.httpVersion;
    /** Trailers that are sent behind the response: a `Headers`, or pairs. */
    this.responseTrailers = [];
  }

  /** Sends an interim response (102 to 199), before the response itself: 103 Early Hints. */
  inform(status, headers) {
    this.#sandbox?.inform(status, headers);
  }

  /** The request's trailers, once its body was read to its end. */
  async trailers() {
    return new Headers(this.#sandbox ? await this.#sandbox.trailers() : []);
  }
}

// ---- The direct protocol ----------------------------------------------------------------------

/** Fields as a message has them: each name and each value is followed by a NUL. */
function encodeFields(fields) {
  let text = '';
  for (const [name, value] of fields) {
    if (/[\0\r\n]/.test(name) || /[\0\r\n]/.test(value)) {
      throw new TypeError(`a header with a line break or a NUL: ${name}`);
    }
    text += `${name}\0${value}\0`;
  }
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) {
    bytes[at] = text.charCodeAt(at);
  }
  return bytes;
}

/** The fields of a block with this many, from its table on. */
function decodeFields(view, text, table, count) {
  const fields = [];
  for (let at = table, end = table + count * FIELD; at < end; at += FIELD) {
    const name = view.getUint32(at, true);
    const value = view.getUint32(at + 8, true);
    fields.push([
      text.substring(name, name + view.getUint32(at + 4, true)),
      text.substring(value, value + view.getUint32(at + 12, true)),
    ]);
  }
  return fields;
}

/** A request block. */
function decodeBlock(buffer, length) {
  const view = new DataView(buffer.buffer, buffer.byteOffset, length);
  const body = view.getUint32(96, true);
  // Offsets in bytes are offsets in characters.
  const text = latin1.decode(buffer.subarray(0, body));
  const span = at => {
    const start = view.getUint32(at, true);
    return text.substring(start, start + view.getUint32(at + 4, true));
  };
  const flags = view.getUint16(6, true);
  const announced = view.getBigUint64(56, true);
  return {
    id: view.getBigUint64(8, true),
    timeNs: view.getBigUint64(16, true),
    random: buffer.slice(24, 56),
    httpVersion: flags & HTTP_1_0 ? '1.0' : flags & HTTP_2 ? '2' : '1.1',
    method: span(64),
    target: span(72),
    authority: span(80),
    headers: decodeFields(view, text, FIXED, view.getUint32(92, true)),
    announced: announced === UNKNOWN_LENGTH ? undefined : Number(announced),
    // A copy: the buffer is used again.
    whole: flags & BODY_COMPLETE
      ? buffer.slice(body, body + view.getUint32(100, true))
      : undefined,
  };
}

function open(name, flags) {
  return fs.openSync(FILES + name, flags);
}

/** Reads from a descriptor while the event loop goes on. */
function readBeside(descriptor, buffer) {
  return new Promise((resolve, reject) => {
    const done = (error, count) => (error ? reject(error) : resolve(count));
    fs.read(descriptor, buffer, 0, buffer.length, null, done);
  });
}

function writeBeside(descriptor, buffer) {
  return new Promise((resolve, reject) => {
    const done = error => (error ? reject(error) : resolve());
    fs.write(descriptor, buffer, 0, buffer.length, null, done);
  });
}

/** The side of the direct protocol that is in a sandbox. */
class Sandbox {
  #handler;
  #requests = open('requests', fs.constants.O_RDONLY);
  #trailers = open('trailers', fs.constants.O_RDONLY);
  #body = open('body', fs.constants.O_RDONLY);
  #bodyNow = open('body', fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
  #response = open('response', fs.constants.O_WRONLY);
  #responseNow = open('response', fs.constants.O_WRONLY | fs.constants.O_NONBLOCK);
  #block = new Uint8Array(PIECE);
  #message = new Uint8Array(PIECE);
  #busy = false;
  #begun = false;
  #bodyEnded = false;

  constructor(handler) {
    this.#handler = handler;
  }

  /** Waits for the first request as soon as there is nothing else to do. */
  async begin() {
    if (globalThis.Deno && fs.existsSync(FILES + 'fresh.cjs')) {
      // Others have been made to load it. Its numbers would repeat themselves else.
      await import(FILES + 'fresh.cjs');
    }
    await rehearse();
    process.on('beforeExit', () => this.#idle());
    this.#waitForIdle();
  }

  // The event loop says that it has nothing to do by `beforeExit`. A program that is always busy,
  // with a timer that repeats, gets its requests from a thread beside the loop.
  #state = 'busy';
  #grace;

  #waitForIdle() {
    this.#state = 'waiting';
    if (this.#busy) {
      setImmediate(() => this.#receiveBeside());
      return;
    }
    this.#wait(PATIENCE);
    // So that the loop has something to come to an end of.
    setImmediate(() => {});
  }

  #wait(patience) {
    if (patience === 0) {
      this.#busy = true;
      this.#receiveBeside();
      return;
    }
    this.#grace = setTimeout(() => this.#wait(patience - 1), GRACE);
    // It does not count as something to do, but runs while there is something.
    this.#grace.unref();
  }

  #idle() {
    if (this.#state === 'answering') {
      console.error(new Error('the handler waits for what cannot happen any more'));
      this.#state = 'stuck';
      this.#fail();
    } else if (this.#state === 'waiting') {
      clearTimeout(this.#grace);
      this.#state = 'answering';
      this.#answer(decodeBlock(this.#block, this.#receive()));
      // Should the handler wait for what cannot happen, the loop says so.
      setImmediate(() => {});
    }
  }

  #receive() {
    for (;;) {
      try {
        return fs.readSync(this.#requests, this.#block, 0, this.#block.length, null);
      } catch (error) {
        this.#grow(error);
      }
    }
  }

  /** Makes room for a longer block, if that is what an error says. */
  #grow(error) {
    if (error.code !== 'EMSGSIZE') {
      throw error;
    }
    this.#block = new Uint8Array(2 * this.#block.length);
  }

  async #receiveBeside() {
    if (this.#state !== 'waiting') {
      return;
    }
    this.#state = 'receiving';
    let length;
    while (length === undefined) {
      try {
        length = await readBeside(this.#requests, this.#block);
      } catch (error) {
        this.#grow(error);
      }
    }
    this.#state = 'answering';
    this.#answer(decodeBlock(this.#block, length));
  }

  async #answer(block) {
    this.#begun = false;
    this.#bodyEnded = block.whole !== undefined || block.announced === 0;
    try {
      const request = this.#request(block);
      const response = await this.#handler(request);
      if (!(response instanceof Response)) {
        throw new TypeError(`the handler returned ${String(response)} instead of a Response`);
      }
      await this.#send(response, contexts.get(request));
    } catch (error) {
      console.error(error);
      this.#fail();
    }
    if (this.#state !== 'stuck') {
      this.#waitForIdle();
    }
  }

  #fail() {
    if (this.#begun) {
      // The response cannot be completed: the client is cut off.
      process.exit(1);
    }
    const type = encodeFields([['content-type', 'text/plain; charset=utf-8']]);
    this.#write(RESPOND, 500, type, NOTHING, utf8.encode('Internal Server Error\n'));
    if (this.#state === 'stuck') {
      this.#waitForIdle();
    }
  }

  #request(block) {
    const headers = new Headers();
    for (const [name, value] of block.headers) {
      headers.append(name, value);
    }
    const scheme = headers.get('x-forwarded-proto') === 'https' ? 'https' : 'http';
    const target = block.target.startsWith('/') ? block.target : '/';
    const init = { method: block.method, headers };
    if (block.method !== 'GET' && block.method !== 'HEAD') {
      init.body = block.whole ?? (block.announced === 0 ? null : this.#stream(block.announced));
      init.duplex = 'half';
    }
    const request = new Request(`${scheme}://${block.authority || 'localhost'}${target}`, init);
    contexts.set(request, new Context(this, block));
    return request;
  }

  /** The body of the request, which is read as somebody wants more of it. */
  #stream(announced) {
    let left = announced ?? Infinity;
    return new ReadableStream({
      type: 'bytes',
      autoAllocateChunkSize: PIECE,
      pull: async controller => {
        const buffer = new Uint8Array(PIECE);
        const count = await this.#read(buffer);
        left -= count;
        if (count > 0) {
          controller.enqueue(buffer.subarray(0, count));
        }
        if (count === 0 || left <= 0) {
          this.#bodyEnded = true;
          controller.close();
          controller.byobRequest?.respond(0);
        }
      },
    }, { highWaterMark: 0 });
  }

  async #read(buffer) {
    try {
      return fs.readSync(this.#bodyNow, buffer, 0, buffer.length, null);
    } catch (error) {
      if (error.code !== 'EAGAIN') {
        throw error;
      }
      return readBeside(this.#body, buffer);
    }
  }

  /** The request's trailers as pairs. */
  async trailers() {
    const buffer = new Uint8Array(PIECE);
    while (!this.#bodyEnded) {
      this.#bodyEnded = await this.#read(buffer) === 0;
    }
    let block = buffer;
    for (;;) {
      try {
        const length = await readBeside(this.#trailers, block);
        const view = new DataView(block.buffer, 0, length);
        return decodeFields(view, latin1.decode(block.subarray(0, length)), 8, view.getUint32(4, true));
      } catch (error) {
        if (error.code !== 'EMSGSIZE') {
          throw error;
        }
        block = new Uint8Array(2 * block.length);
      }
    }
  }

  inform(status, headers) {
    this.#write(INFORM, status, encodeFields(new Headers(headers)), NOTHING, NOTHING);
  }

  async #send(response, context) {
    const headers = [...response.headers];
    let fields = encodeFields(headers);
    const reader = response.body?.getReader();
    // The first piece, and whether it is all: most bodies are there at once.
    const first = reader ? await reader.read() : { done: true };
    const second = first.done ? first : await this.#atOnce(reader);
    if (second?.done) {
      const trailers = encodeFields(context.responseTrailers);
      const body = first.done ? NOTHING : asBytes(first.value);
      if (HEAD + fields.length + trailers.length + body.length <= LONGEST_MESSAGE) {
        this.#write(RESPOND, response.status, fields, trailers, body);
        return;
      }
      if (!headers.some(([name]) => name === 'content-length')) {
        fields = encodeFields([...headers, ['content-length', String(body.length)]]);
      }
    }
    this.#begun = true;
    this.#write(BEGIN, response.status, fields, NOTHING, NOTHING);
    let next = first;
    let later = second;
    while (!next.done) {
      await this.#piece(asBytes(next.value));
      next = later ?? await (this.#pending ?? reader.read());
      later = undefined;
      this.#pending = undefined;
    }
    this.#write(FINISH, 0, encodeFields(context.responseTrailers), NOTHING, NOTHING);
  }

  #pending;

  /** What a reader has without waiting for anything but the microtasks; else `undefined`. */
  async #atOnce(reader) {
    let result;
    this.#pending = reader.read();
    this.#pending.then(value => (result = value), () => {});
    for (let turn = 0; turn < 8 && result === undefined; turn++) {
      await null;
    }
    if (result !== undefined) {
      this.#pending = undefined;
    }
    return result;
  }

  async #piece(bytes) {
    const most = LONGEST_MESSAGE - HEAD;
    for (let at = 0; at < bytes.length; at += most) {
      const message = this.#encode(WRITE, 0, NOTHING, NOTHING, bytes.subarray(at, at + most));
      try {
        fs.writeSync(this.#responseNow, message, 0, message.length, null);
      } catch (error) {
        if (error.code !== 'EAGAIN') {
          throw error;
        }
        // The client is slow.
        await writeBeside(this.#response, message.slice());
      }
    }
  }

  #encode(kind, status, fields, trailers, body) {
    const length = HEAD + fields.length + trailers.length + body.length;
    if (this.#message.length < length) {
      this.#message = new Uint8Array(LONGEST_MESSAGE);
    }
    const message = this.#message.subarray(0, length);
    const view = new DataView(message.buffer);
    view.setUint32(0, kind, true);
    view.setUint32(4, status, true);
    view.setUint32(8, fields.length, true);
    view.setUint32(12, trailers.length, true);
    message.set(fields, HEAD);
    message.set(trailers, HEAD + fields.length);
    message.set(body, HEAD + fields.length + trailers.length);
    return message;
  }

  #write(...parts) {
    const message = this.#encode(...parts);
    fs.writeSync(this.#response, message, 0, message.length, null);
  }
}

/** Platforms make much of this when it is first used: that is not to be in each request. */
async function rehearse() {
  for (let round = 0; round < 20; round++) {
    const headers = new Headers();
    headers.append('host', 'localhost');
    const request = new Request('http://localhost/', { method: 'POST', headers, body: 'a' });
    const response = new Response(await request.text(), { headers: { 'x-a': 'b' } });
    encodeFields(response.headers);
    const reader = response.body.getReader();
    while (!(await reader.read()).done);
  }
}

function asBytes(piece) {
  if (typeof piece === 'string') {
    return utf8.encode(piece);
  }
  return piece instanceof Uint8Array ? piece : new Uint8Array(piece);
}

// ---- Outside a sandbox ------------------------------------------------------------------------

let exchanges = 0n;

function outsideContext(request, target, headers, httpVersion) {
  exchanges += 1n;
  contexts.set(request, new Context(undefined, {
    id: exchanges,
    timeNs: BigInt(Date.now()) * 1_000_000n,
    random: globalThis.crypto.getRandomValues(new Uint8Array(32)),
    target,
    headers,
    httpVersion,
  }));
}

/** Serves plain HTTP, for development, with what the platform has. */
function serveOutside(handler) {
  const port = Number(process.env.PORT ?? 8000);
  const hostname = '127.0.0.1';
  const answer = async request => {
    const { pathname, search } = new URL(request.url);
    outsideContext(request, pathname + search, [...request.headers], '1.1');
    try {
      const response = await handler(request);
      if (!(response instanceof Response)) {
        throw new TypeError(`the handler returned ${String(response)} instead of a Response`);
      }
      return response;
    } catch (error) {
      console.error(error);
      return new Response('Internal Server Error\n', { status: 500 });
    }
  };
  if (globalThis.Deno) {
    globalThis.Deno.serve({ hostname, port }, answer);
  } else if (globalThis.Bun) {
    globalThis.Bun.serve({ hostname, port, fetch: answer });
    console.error(`serving on http://${hostname}:${port}`);
  } else {
    serveNode(answer, hostname, port);
  }
}

async function serveNode(answer, hostname, port) {
  const { createServer } = await import('node:http');
  const { Readable } = await import('node:stream');
  const server = createServer(async (incoming, outgoing) => {
    const headers = new Headers();
    for (let at = 0; at < incoming.rawHeaders.length; at += 2) {
      headers.append(incoming.rawHeaders[at], incoming.rawHeaders[at + 1]);
    }
    const init = { method: incoming.method, headers };
    if (incoming.method !== 'GET' && incoming.method !== 'HEAD') {
      init.body = Readable.toWeb(incoming);
      init.duplex = 'half';
    }
    const url = `http://${incoming.headers.host ?? hostname}${incoming.url}`;
    const response = await answer(new Request(url, init));
    outgoing.writeHead(response.status, [...response.headers].flat());
    try {
      for await (const piece of response.body ?? []) {
        if (!outgoing.write(piece)) {
          await new Promise(resolve => outgoing.once('drain', resolve));
        }
      }
      outgoing.end();
    } catch (error) {
      console.error(error);
      outgoing.destroy();
    }
  });
  server.listen(port, hostname, () => console.error(`serving on http://${hostname}:${port}`));
}
