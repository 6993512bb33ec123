// An ordinary Deno server. Each request finds `count` as it was before the first one.
let count = 0;

Deno.serve({ port: 8000 }, async (request: Request) => {
  count++;
  const url = new URL(request.url);
  if (url.pathname === '/echo') {
    return new Response(request.body);
  }
  return Response.json({ count, path: url.pathname, id: crypto.randomUUID() });
});
