// A thread that sends the load generator a message at each step (`slotMs`) of the schedule. The event loop's timers are too
// coarse: their resolution of 1 ms is as long as a whole call.
import { parentPort, workerData } from 'node:worker_threads';

const { slotMs, stop } = workerData as { slotMs: number; stop: Int32Array };
let due = performance.now();
while (Atomics.load(stop, 0) === 0) {
  due += slotMs;
  const wait = due - performance.now();
  if (wait > 0) Atomics.wait(stop, 0, 0, wait);
  parentPort?.postMessage(0);
}
