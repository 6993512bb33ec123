// Adds up in a thread of its own.
import { parentPort, workerData } from 'node:worker_threads';

let sum = 0;
for (let number = 1; number <= workerData; number++) sum += number;
parentPort.postMessage(sum);
