// Shortens a failing world: leaves out clients, requests and faults, as long as the same invariant is violated.

import { goodAnswer, type ClientPlan, type Plan, type RequestPlan } from './plan.ts';
import { runWorld } from './world.ts';

const triesMax = 600;

function without<T>(list: readonly T[], from: number, count: number): T[] {
  return [...list.slice(0, from), ...list.slice(from + count)];
}

function* shorterRequests(request: RequestPlan): Generator<RequestPlan> {
  const { answers, pieces, bytes, isChunked, expects, conditions, gapMs } = request;
  for (const [index, answer] of answers.entries()) {
    if (JSON.stringify(answer) === JSON.stringify(goodAnswer)) continue;
    yield { ...request, answers: answers.with(index, goodAnswer) };
    for (const name of Object.keys(answer) as (keyof typeof answer)[]) {
      if (answer[name] === goodAnswer[name]) continue;
      yield { ...request, answers: answers.with(index, { ...answer, [name]: goodAnswer[name] }) };
    }
  }
  if (pieces > 1) yield { ...request, pieces: 1, pieceMs: 0 };
  if (bytes > 64) yield { ...request, bytes: 64 };
  if (isChunked || expects || conditions) yield { ...request, isChunked: false, expects: false, conditions: false };
  if (gapMs > 0) yield { ...request, gapMs: 0 };
}

function* shorterClients(client: ClientPlan): Generator<ClientPlan> {
  const { requests, ahead, leaves, stopsAfter, startMs } = client;
  for (let count = requests.length >> 1; count >= 1; count >>= 1) {
    for (let from = 0; from < requests.length; from += count) {
      yield { ...client, requests: without(requests, from, count) };
    }
  }
  if (ahead > 1) yield { ...client, ahead: 1 };
  if (leaves !== undefined) yield { ...client, leaves: undefined };
  if (stopsAfter !== undefined) yield { ...client, stopsAfter: undefined };
  if (startMs > 0) yield { ...client, startMs: 0 };
  for (const [index, request] of requests.entries()) {
    for (const each of shorterRequests(request)) yield { ...client, requests: requests.with(index, each) };
  }
}

function* shorterPlans(plan: Plan): Generator<Plan> {
  const { clients, events, dials } = plan;
  for (const index of clients.keys()) yield { ...plan, clients: without(clients, index, 1) };
  for (const index of events.keys()) yield { ...plan, events: without(events, index, 1) };
  for (const [index, dial] of dials.entries()) {
    if (dial.result !== 'open' || dial.afterMs > 1)
      yield { ...plan, dials: dials.with(index, { result: 'open', afterMs: 0.5 }) };
  }
  if (plan.guardMs !== undefined) yield { ...plan, guardMs: undefined };
  if (plan.limits.connections < 1_000) yield { ...plan, limits: { ...plan.limits, connections: 1_000 } };
  if (plan.limits.inFlight < 1_000) yield { ...plan, limits: { ...plan.limits, inFlight: 1_000 } };
  const network = { latencyMs: 0.1, pieceBytes: 65_536, readsPerTurn: 1, bufferBytes: 400_000 };
  if (JSON.stringify(network) !== JSON.stringify(plan.network)) yield { ...plan, network };
  for (const [index, client] of clients.entries()) {
    for (const each of shorterClients(client)) yield { ...plan, clients: clients.with(index, each) };
  }
}

/** Returns the shortest plan found that violates `invariant`. */
export function shorten(plan: Plan, invariant: string): Plan {
  let shortest = plan;
  let tries = 0;
  for (let hasChanged = true; hasChanged && tries < triesMax;) {
    hasChanged = false;
    for (const candidate of shorterPlans(shortest)) {
      if ((tries += 1) > triesMax) break;
      if (runWorld(candidate).violation?.invariant !== invariant) continue;
      shortest = candidate;
      hasChanged = true;
      break;
    }
  }
  return shortest;
}
