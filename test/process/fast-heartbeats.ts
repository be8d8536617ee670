// Loaded into the built command with `node --import`: the primary process and its workers exchange heartbeats twice as
// often. So the primary declares a worker hung after 5 s instead of 10 s.

const original = globalThis.setInterval;

Object.assign(globalThis, {
  setInterval: (callback: (...values: unknown[]) => void, ms?: number, ...values: unknown[]) =>
    original(callback, ms === 1_000 ? 500 : ms, ...values),
});
