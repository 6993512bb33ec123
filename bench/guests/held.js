// A Node server that begins every answer to /held and never ends it: its sandbox stays in use.
require('http').createServer((request, response) => {
  if (request.url === '/held') response.write('held\n');
  else response.end('hello\n');
}).listen(3000);
