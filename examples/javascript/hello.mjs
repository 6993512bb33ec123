// A handler of the web's `Request` and `Response`, by the direct protocol.
import { context, serve } from '/sandtide/sandtide.js';

let count = 0;

serve(async request => {
  const url = new URL(request.url);
  switch (url.pathname) {
    case '/':
      return new Response(`request ${++count}, which the log calls ${context(request).id.toString(16)}\n`);
    case '/upper': {
      const upper = new TransformStream({
        transform: (piece, controller) => controller.enqueue(piece.toUpperCase()),
      });
      const body = request.body
        ?.pipeThrough(new TextDecoderStream())
        .pipeThrough(upper)
        .pipeThrough(new TextEncoderStream());
      return new Response(body);
    }
    default:
      return new Response('nothing here\n', { status: 404 });
  }
});
