// The simulated clients of a server that speaks HTTP/1.1. They send what the plan says, and check how replies come.

import { Chance, loop } from './event-loop.ts';
import { tokens } from './issuer.ts';
import { isMalformed, requestBytes } from './messages.ts';
import { Asked } from './model.ts';
import type { ClientPlan, RequestPlan } from './plan.ts';
import { Party } from './sockets.ts';
import type { World } from './world.ts';

// Nothing after a body that is too large is served [D11].
const mayEnd = (plan: RequestPlan): boolean => isMalformed(plan) || plan.kind === 'too-large';

export class Client {
  readonly plan: ClientPlan;
  readonly world: World;
  name = '';
  /** It sends nothing new. */
  isStopped = false;
  #connections = 0;
  #next = 0;
  readonly #index: number;
  #open: ClientConnection | undefined;

  constructor(world: World, plan: ClientPlan, index: number) {
    [this.world, this.plan, this.#index] = [world, plan, index];
  }

  /** True if it waits for nothing and will ask nothing more. */
  get isDone(): boolean {
    return this.#open === undefined && (!this.hasMore || !this.world.isListening);
  }

  get hasMore(): boolean {
    return !this.isStopped && this.#next < this.plan.requests.length;
  }

  /** Returns the next request, to send it on the open connection. */
  takeRequest(): Asked | undefined {
    const plan = this.hasMore ? this.plan.requests[this.#next] : undefined;
    if (plan === undefined) return undefined;
    this.#next += 1;
    const asked = new Asked(plan);
    this.world.asked.set(plan.id, asked);
    return asked;
  }

  connect(): void {
    const { world } = this;
    if (!this.hasMore || !world.isListening) return;
    this.#connections += 1;
    this.name = `client ${this.#index + 1}.${this.#connections}`;
    const chance = new Chance(world.plan.seed, 4, this.#index, this.#connections);
    const address = `192.0.2.${this.#index + 1}`;
    this.#open = new ClientConnection(this).open(address, world.plan.network, chance, { allowHalfOpen: true });
    world.report(`${this.name} connects`);
    world.accept(this.#open);
    this.#open.sendNext();
  }

  onClosed(): void {
    this.#open = undefined;
    loop.after(1, () => this.connect());
  }

  /** The faults stop: it reads again, sends nothing new, and leaves if it would wait for ever. */
  heal(): void {
    this.isStopped = true;
    this.#open?.heal();
  }
}

export class ClientConnection extends Party {
  readonly client: Client;
  readonly openedAt = loop.now;
  readonly name: string;
  /** All sent requests, and those of them without a complete reply. */
  readonly all: Asked[] = [];
  readonly outstanding: Asked[] = [];
  /** The last reply announced the end, or was to a malformed request. */
  isLast = false;
  /** The gateway has written its last reply. */
  isEnding = false;
  hasStopped = false;
  hasLeft = false;
  lastRepliedAt = 0;
  /** When the gateway last got or wrote anything. */
  activeAt = loop.now;
  readonly #world: World;
  #sent = 0;
  #got = 0;
  #unread: Buffer = Buffer.alloc(0);
  #turn = 0;
  #turnStarts = 0;
  #listeners = Infinity;
  #isSending = false;
  // The request whose body waits for `100 Continue`.
  #expecting: { readonly asked: Asked; readonly sendBody: () => void } | undefined;
  #isOver = false;

  constructor(client: Client) {
    super();
    [this.client, this.#world, this.name] = [client, client.world, client.name];
  }

  sendNext(): void {
    const { ahead } = this.client.plan;
    const last = this.all.at(-1);
    if (this.#isSending || this.isLast || this.hasLeft || (last && mayEnd(last.plan))) return;
    if (this.outstanding.length >= ahead) return;
    const next = this.client.takeRequest();
    if (next === undefined) {
      // Some clients leave the connection to the gateway's time limit.
      const mayLeave = this.client.plan.requests.length % 3 > 0 || this.client.isStopped;
      if (this.outstanding.length === 0 && !this.isGone && mayLeave) this.#leave('close', '');
      return;
    }
    this.#isSending = true;
    const send = (): void => {
      if (this.isGone || this.hasLeft || this.isLast) this.#world.asked.delete(next.plan.id);
      else this.#sendRequest(next);
    };
    // Requests ahead are sent at once.
    if (this.outstanding.length > 0) send();
    else loop.after(next.plan.gapMs, send);
  }

  #sendRequest(asked: Asked): void {
    const { id, kind, expects, pieces, pieceMs, token } = asked.plan;
    const { head, body } = requestBytes(asked.plan, tokens[token]);
    asked.connection = this;
    asked.sentAt = loop.now;
    asked.start = this.all.at(-1)?.end ?? 0;
    asked.headEnd = asked.start + head.length;
    asked.end = kind === 'unfinished' ? Infinity : asked.headEnd + body.length;
    this.outstanding.push(asked);
    this.all.push(asked);
    this.#world.report(`${this.name} sends request ${id}, ${kind}, ${head.length} + ${body.length} bytes`);
    const send = (bytes: Buffer, left: number, done: () => void): void => {
      if (this.isGone || this.hasLeft) return;
      const length = Math.ceil(bytes.length / left);
      this.#sendSome(bytes.subarray(0, length));
      if (left <= 1) done();
      else loop.after(pieceMs, () => send(bytes.subarray(length), left - 1, done));
    };
    const done = (): void => {
      this.#isSending = false;
      this.sendNext();
    };
    if (!expects || body.length === 0) {
      send(Buffer.concat([head, body]), pieces, done);
      return;
    }
    const expecting = {
      asked,
      sendBody: () => {
        if (this.#expecting !== expecting) return;
        this.#expecting = undefined;
        send(body, pieces, done);
      },
    };
    this.#expecting = expecting;
    send(head, pieces, () => loop.after(500, expecting.sendBody));
  }

  #sendSome(bytes: Buffer): void {
    const { leaves } = this.client.plan;
    const left = leaves?.of === 'sent' ? leaves.after - this.#sent : Infinity;
    this.#sent += bytes.length;
    // A client that resets its connection sends a whole request first, others leave in the middle of it.
    const isWhole = leaves?.how === 'reset';
    this.send(isWhole ? bytes : bytes.subarray(0, left));
    if (bytes.length < left) return;
    if (isWhole) loop.after(10, () => this.#leaveAsPlanned());
    else this.#leaveAsPlanned();
  }

  #leaveAsPlanned(): void {
    if (this.hasLeft || this.isGone) return;
    const { how = 'close' } = this.client.plan.leaves ?? {};
    this.client.isStopped = true;
    this.#leave(how, `${this.name} leaves: ${how}`);
  }

  #leave(how: 'end' | 'close' | 'reset', report: string): void {
    if (report !== '') this.#world.report(report);
    this.hasLeft = true;
    this[how]();
    if (how !== 'end') this.#close();
  }

  heal(): void {
    this.#world.checkIdle(this);
    this.read(true);
    if (this.outstanding.length === 0 && !this.hasLeft) this.#leave('close', '');
  }

  onDelivered(what: 'bytes' | 'end' | 'reset'): void {
    const world = this.#world;
    const { delivered } = this.toGateway;
    if (this.closedAt === undefined) this.activeAt = loop.now;
    for (const asked of this.all) {
      if (delivered <= asked.start) break;
      if (asked.headAt === undefined) this.#beginHead(asked);
      if (delivered >= asked.headEnd) asked.headEndAt ??= loop.now;
      if (delivered < asked.end) break;
      asked.wholeAt ??= loop.now;
      asked.wholeTurn ??= loop.turn;
    }
    if (what !== 'bytes') world.onLeft(this.outstanding, what === 'reset');
    // Bytes after the last reply are read and dropped.
    if (this.isEnding || what !== 'bytes') return;
    const waiting = this.pending?.end ?? Infinity;
    world.checkReads(this.handle.turnReads, delivered - waiting, this.name);
  }

  #beginHead(asked: Asked): void {
    const world = this.#world;
    asked.headAt = loop.now;
    asked.generation = world.generation;
    if (world.plan.host !== 'own') return;
    const { listenerTotal } = this.socket;
    world.expect(listenerTotal <= this.#listeners, 'stays', `${listenerTotal} listeners of ${this.name}`);
    this.#listeners = listenerTotal;
  }

  /** The first request whose reply is not written. */
  get pending(): Asked | undefined {
    return this.all.find(({ repliedAt }) => repliedAt === undefined);
  }

  /** Since when the rest of a body arrives whose reply was sent before; undefined if none does. */
  get restSince(): number | undefined {
    const { closedAt = loop.now } = this;
    const arriving = this.all.find(({ wholeAt = Infinity }) => wholeAt > closedAt);
    if (arriving?.repliedAt === undefined) return undefined;
    return arriving.start === 0 ? this.openedAt : arriving.headAt;
  }

  /** The gateway writes a reply, or a part of one. */
  onWrite(start: string): void {
    const world = this.#world;
    this.activeAt = loop.now;
    if (!start.startsWith('HTTP/1.1 ') || start.startsWith('HTTP/1.1 100')) return;
    if (start.includes('\r\nconnection: close')) this.isEnding = true;
    this.#turnStarts = this.#turn === loop.turn ? this.#turnStarts + 1 : 1;
    this.#turn = loop.turn;
    const asked = this.pending;
    if (asked !== undefined) asked.repliedAt = loop.now;
    const { host, guardMs, fetches } = world.plan;
    if (host !== 'own' || guardMs !== undefined || fetches !== undefined) return;
    world.expect(this.#turnStarts <= 17, 'turns', this.name);
    if (asked !== undefined && this.client.plan.ahead === 1) world.checkTurns(asked);
  }

  onReceived(bytes: Buffer): void {
    this.#got += bytes.length;
    this.#unread = Buffer.concat([this.#unread, bytes]);
    while (this.#readReply());
    const { stopsAfter = Infinity, stopsForMs, leaves } = this.client.plan;
    if (this.isGone || this.hasLeft) return;
    if (leaves?.of === 'got' && this.#got >= leaves.after) {
      this.#leaveAsPlanned();
    } else if (this.#got >= stopsAfter && !this.client.isStopped && !this.hasStopped) {
      this.hasStopped = true;
      this.#world.report(`${this.name} stops reading`);
      this.read(false);
      loop.after(stopsForMs, () => {
        this.#world.checkStall(this);
        this.read(true);
      });
    }
  }

  // Reads one reply. Returns false if it is not complete.
  #readReply(): boolean {
    const world = this.#world;
    const unread = this.#unread;
    const end = unread.indexOf('\r\n\r\n') + 4;
    if (end === 3) return false;
    const [line = '', ...lines] = unread.toString('latin1', 0, end - 4).split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(line)?.[1]);
    const [asked] = this.outstanding;
    const isCutOff = this.hasLeft && this.all.at(-1)?.wholeAt === undefined;
    // Node itself answers a request that is cut off, also after its reply.
    if (asked === undefined && world.plan.host === 'node' && status === 400 && isCutOff) {
      this.#unread = Buffer.alloc(0);
      return false;
    }
    if (asked === undefined) return world.fail('one', `${this.name} gets ${line}`);
    const headers = new Map(lines.map((each) => each.toLowerCase().split(': ', 2) as [string, string]));
    world.expect(headers.size === lines.length, 'headers', line);
    const isHead =
      asked.plan.kind === 'head' && (status !== 408 || (asked.headEndAt ?? Infinity) < (asked.repliedAt ?? 0));
    const hasBody = status !== 100 && status !== 204 && !isHead;
    const length = end + (hasBody ? Number(headers.get('content-length')) : 0);
    if (unread.length < length) return false;
    const body = unread.subarray(end, length);
    this.#unread = unread.subarray(length);
    if (status === 100) {
      asked.continues += 1;
      world.expect(asked.plan.expects && asked.continues === 1, 'continue', this.name);
      // The body of an earlier request may have been sent without waiting for it.
      if (this.#expecting?.asked === asked) this.#expecting.sendBody();
      return true;
    }
    this.outstanding.shift();
    const closes = headers.get('connection') === 'close';
    // The gateway cannot know whether the body will follow [RFC 9110, 10.1.1].
    world.expect(this.#expecting?.asked !== asked || closes, 'continue', `${this.name}: the connection stays open`);
    if (closes || mayEnd(asked.plan)) this.isLast = true;
    world.checkReply(asked, status, headers, body);
    if (!this.isLast) this.sendNext();
    return true;
  }

  onEnd(isReset = false): void {
    if (this.#isOver) return;
    this.#world.report(`${this.name}: the gateway ${isReset ? 'resets' : 'ends'} the connection`);
    const isCut = this.#unread.length > 0;
    if (!this.hasLeft || isCut) this.#world.checkLost(this, isCut);
    if (!isReset) this.close();
    this.#close();
  }

  #close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.client.onClosed();
  }
}
