// A thread that wakes the load generator once per slot of the schedule. The event loop's own timers are too coarse:
// they count whole milliseconds, as much as a whole call takes.
import { parentPort, workerData } from 'node:worker_threads';

const { slotMs, stop } = workerData as { slotMs: number; stop: Int32Array };
let due = performance.now();
while (Atomics.load(stop, 0) === 0) {
  due += slotMs;
  const wait = due - performance.now();
  if (wait > 0) Atomics.wait(stop, 0, 0, wait);
  parentPort?.postMessage(0);
}
