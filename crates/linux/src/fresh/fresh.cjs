// Numbers that JavaScript draws without asking the system are drawn anew in each request: loaded by
// Sandtide before a program (`reseed = false` turns it off).
'use strict';

// This memory holds other bytes, the first of them not zero, whenever a request begins.
const { openSync, readSync } = require('fs');
const fresh = new Uint8Array(new ArrayBuffer(64));
const words = new Int32Array(fresh.buffer);
readSync(openSync('/sandtide/fresh', 'r'), fresh, 0, fresh.length, null);

// The generator `sfc32` of Chris Doty-Humphrey: 128 bits of state, one of them a counter.
let a = 0;
let b = 0;
let c = 0;
let count = 1;

// Bytes for integers, of which some are left for the next.
const pool = new Uint8Array(1536);
const view = new DataView(pool.buffer);
let left = 0;

// What makes the interpreter's own generator seed itself, where it does not by itself.
let reseed = () => {};

function renew() {
  fresh[0] = 0;
  a = words[1];
  b = words[2];
  c = words[3];
  count = 1;
  left = 0;
  reseed();
  for (let i = 0; i < 12; i++) bits();
}

function bits() {
  const sum = (((a + b) | 0) + count) | 0;
  count = (count + 1) | 0;
  a = b ^ (b >>> 9);
  b = (c + (c << 3)) | 0;
  c = ((c << 21) | (c >>> 11)) + sum | 0;
  return sum;
}

// Replaces a function by one that seems to be the same.
function replace(object, name, value) {
  const was = Object.getOwnPropertyDescriptor(object, name);
  if (!was || !(was.configurable || was.writable)) return;
  const { length } = was.value;
  Object.defineProperty(value, 'name', { value: name, configurable: true });
  Object.defineProperty(value, 'length', { value: length, configurable: true });
  Object.defineProperty(object, name, { ...was, value });
}

replace(Math, 'random', () => {
  if (fresh[0] !== 0) renew();
  return ((bits() >>> 5) * 0x4000000 + (bits() >>> 6)) / 0x20000000000000;
});

// These keep random bytes for the next call. A build of Node without OpenSSL has none of them.
let crypto;
try {
  crypto = require('crypto');
} catch {}

if (crypto) {
  const { randomFillSync, randomInt, randomUUID } = crypto;

  // From 0 to below `range`, each as likely.
  const below = range => {
    const limit = 2 ** 48 - (2 ** 48 % range);
    for (;;) {
      if (fresh[0] !== 0) renew();
      if (left === 0) {
        randomFillSync(pool);
        left = pool.length;
      }
      left -= 6;
      const number = view.getUint32(left) * 0x10000 + view.getUint16(left + 4);
      if (number < limit) return number % range;
    }
  };

  replace(crypto, 'randomInt', (...args) => {
    // What the original says of its arguments holds; what it has drawn does not.
    const [first, second, third] = args;
    const isRange = second !== undefined && typeof second !== 'function';
    const [min, max, callback] = isRange ? [first, second, third] : [0, first, second];
    const draw = () => min + below(max - min);
    if (callback === undefined) {
      randomInt(...args);
      return draw();
    }
    if (typeof callback !== 'function') return randomInt(...args);
    return randomInt(min, max, error => (error ? callback(error) : callback(null, draw())));
  });

  const uncached = options => {
    const isObject = typeof options === 'object' && options !== null;
    const sound = options === undefined || (isObject && !options.disableEntropyCache);
    return randomUUID(sound ? { ...options, disableEntropyCache: true } : options);
  };
  replace(crypto, 'randomUUID', options => uncached(options));

  const web = globalThis.crypto || crypto.webcrypto;
  const prototype = Object.getPrototypeOf(web || {});
  const { getRandomValues, randomUUID: webUUID } = prototype;
  if (webUUID) {
    replace(prototype, 'randomUUID', function () {
      return this === web ? uncached() : webUUID.call(this);
    });
  }
  if (typeof Bun === 'object') {
    // It keeps bytes for the next call, too.
    replace(prototype, 'getRandomValues', function (array) {
      getRandomValues.call(this, array);
      return randomFillSync(array);
    });
  }
  if (typeof Deno === 'object') {
    // All is drawn from one generator, which seeds itself after 64 KiB, and has some more at hand.
    reseed = () => {
      getRandomValues.call(web, new Uint8Array(65536));
      getRandomValues.call(web, new Uint8Array(1024));
    };
    const after = (holder, name) => {
      const original = holder[name];
      if (typeof original !== 'function') return;
      replace(holder, name, function (...args) {
        if (fresh[0] !== 0) renew();
        return original.apply(this, args);
      });
    };
    for (const name of ['getRandomValues', 'randomUUID']) after(prototype, name);
    for (const name of ['randomBytes', 'randomFill', 'randomFillSync', 'randomUUID']) after(crypto, name);
  }
  require('module').syncBuiltinESMExports?.();
}
