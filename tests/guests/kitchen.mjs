// A handler that does what can be done: tests/tests/javascript.rs.
import { context, serve } from '/sandtide/sandtide.js';
import { readFile } from 'node:fs/promises';

let count = 0;
const sleep = time => new Promise(resolve => setTimeout(resolve, time));
const text = new TextEncoder();

const handlers = {
  '/': () => new Response(String(++count)),
  '/timer': async () => (await sleep(2), new Response('later')),
  '/echo': request => new Response(request.body),
  '/text': async request => new Response((await request.text()).toUpperCase()),
  '/length': async request => {
    let length = 0;
    for await (const piece of request.body) length += piece.length;
    return new Response(String(length));
  },
  '/ticks': request => {
    // Timers go on while the body is waited for.
    let ticks = 0;
    const timer = setInterval(() => ticks++, 1);
    return new Response(new ReadableStream({
      async start(controller) {
        while (ticks < 3) await sleep(1);
        controller.enqueue(text.encode('ready\n'));
        const before = ticks;
        for await (const _ of request.body);
        clearInterval(timer);
        controller.enqueue(text.encode(ticks > before ? 'went on' : 'stood still'));
        controller.close();
      },
    }));
  },
  '/large': () =>
    new Response('x'.repeat(5_000_000), { headers: { 'content-length': '5000000' } }),
  '/flood': () => {
    let left = 200;
    return new Response(new ReadableStream({
      pull(controller) {
        controller.enqueue(new Uint8Array(20_000).fill(121));
        if (--left === 0) controller.close();
      },
    }));
  },
  '/seen': request => {
    const { target, rawHeaders, httpVersion, id, random } = context(request);
    const twice = rawHeaders.filter(([name]) => name === 'x-twice').map(([, value]) => value);
    return Response.json({
      method: request.method, url: request.url, target, twice, httpVersion, id: id.toString(16),
      random: random.length, joined: request.headers.get('x-twice'),
    });
  },
  '/headers': () => {
    const headers = new Headers({ 'x-a': 'b' });
    headers.append('set-cookie', 'a=1');
    headers.append('set-cookie', 'b=2');
    return new Response(null, { status: 204, headers });
  },
  '/trailers': async request => {
    const got = (await request.text(), await context(request).trailers()).get('x-sum');
    context(request).responseTrailers = [['x-sum', got]];
    return new Response('body');
  },
  '/hints': request => {
    context(request).inform(103, { link: '</a.css>; rel=preload' });
    return new Response('hinted');
  },
  '/not-modified': () => new Response(null, { status: 304, headers: { etag: '"a"' } }),
  '/numbers': request => {
    const random = Buffer.from(context(request).random).toString('hex');
    const drawn = Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString('hex');
    const fraction = Math.random();
    return new Response(`${random} ${drawn} ${crypto.randomUUID()} ${fraction}`);
  },
  '/file': async () => new Response((await readFile('/proc/version', 'utf8')).slice(0, 5)),
  '/throws': () => {
    throw new Error('in the handler');
  },
  '/throws-late': () => {
    let sent = false;
    return new Response(new ReadableStream({
      async pull(controller) {
        await sleep(1);
        if (sent) throw new Error('behind the beginning');
        controller.enqueue(text.encode('some'));
        sent = true;
      },
    }));
  },
  '/no-response': () => 'a string',
  '/never': () => new Promise(() => {}),
  '/leaves': () => process.exit(3),
};

const slow = process.argv.includes('--busy') && setInterval(() => {}, 10);
await sleep(slow ? 1 : 0);

serve(request => {
  const handler = handlers[new URL(request.url).pathname];
  return handler ? handler(request) : new Response('nothing here', { status: 404 });
});
