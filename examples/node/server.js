// An ordinary Node server. Each request finds `count` as it was before the first one.
let count = 0;

require('http').createServer((request, response) => {
  count++;
  response.setHeader('content-type', 'text/plain');
  response.end(`Hello from Node: request ${count}\n`);
}).listen(3000);
