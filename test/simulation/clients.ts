// The simulated clients of a server that speaks HTTP/1.1. They send what the plan says, and check how replies come.

import { Chance, loop } from './event-loop.ts';
import { endsConnection, requestBytes } from './messages.ts';
import type { ClientPlan, RequestPlan } from './plan.ts';
import { Connection, Party } from './sockets.ts';
import { Asked, type World, type WorldClient } from './world.ts';

const startsPerTurn = 17;

// Nothing after a body that is too large is served [D11].
const mayEnd = (plan: RequestPlan): boolean => endsConnection(plan) || plan.kind === 'too-large';

export class Client implements WorldClient {
  readonly plan: ClientPlan;
  readonly address: string;
  readonly world: World;
  isStopped = false;
  hasLeft = false;
  connections = 0;
  #next = 0;
  readonly #index: number;
  #open: ClientConnection | undefined;

  constructor(world: World, plan: ClientPlan, index: number) {
    this.world = world;
    this.plan = plan;
    this.#index = index;
    this.address = `192.0.2.${index + 1}`;
  }

  get isDone(): boolean {
    return this.#open === undefined && (!this.hasMore || !this.world.isListening);
  }

  get hasMore(): boolean {
    return !this.hasLeft && !this.isStopped && this.#next < this.plan.requests.length;
  }

  /** Returns the next request, to send it on the open connection. */
  takeRequest(): Asked | undefined {
    const plan = this.hasLeft || this.isStopped ? undefined : this.plan.requests[this.#next];
    if (plan === undefined) return undefined;
    this.#next += 1;
    const asked = new Asked(plan, this.address);
    this.world.asked.set(plan.id, asked);
    return asked;
  }

  connect(): void {
    const { world } = this;
    if (!this.hasMore || !world.isListening) return;
    this.connections += 1;
    const party = new ClientConnection(this);
    this.#open = party;
    const chance = new Chance(world.plan.seed, 4, this.#index, this.connections);
    const options = { allowHalfOpen: true };
    const connection = new Connection(party, this.address, world.plan.network, chance, options);
    world.report(`${this.name} connects`);
    world.accept(connection);
    party.sendNext();
  }

  get name(): string {
    return `client ${this.#index + 1}.${this.connections}`;
  }

  onClosed(): void {
    this.#open = undefined;
    loop.after(1, () => this.connect());
  }

  /** The faults stop: the client reads again, and leaves if it would wait for ever. */
  heal(): void {
    this.isStopped = true;
    this.#open?.heal();
  }
}

export class ClientConnection extends Party {
  readonly client: Client;
  readonly openedAt = loop.now;
  readonly name: string;
  /** Sent requests without a complete reply. */
  readonly outstanding: Asked[] = [];
  /** The last reply announced the end, or was to a malformed request. */
  isLast = false;
  hasStopped = false;
  hasLeft = false;
  lastRepliedAt = 0;
  /** When the gateway last got or wrote anything. */
  activeAt = loop.now;
  readonly #all: Asked[] = [];
  #queued = 0;
  #got = 0;
  #chunks: Buffer[] = [];
  #size = 0;
  #needed = 1;
  #delivered = 0;
  #written = 0;
  #turn = 0;
  #turnStarts = 0;
  #isSending = false;
  // The request whose body waits for `100 Continue`.
  #expecting: { readonly asked: Asked; readonly sendBody: () => void } | undefined;
  #isOver = false;
  #hasEnded = false;

  constructor(client: Client) {
    super();
    this.client = client;
    this.name = client.name;
  }

  sendNext(): void {
    const { world, plan } = this.client;
    const last = this.#all.at(-1);
    if (this.#isSending || this.isLast || this.hasLeft || (last && mayEnd(last.plan))) return;
    if (this.outstanding.length >= plan.ahead) return;
    const next = this.client.takeRequest();
    if (next === undefined) {
      if (this.outstanding.length === 0) this.#finish();
      return;
    }
    this.#isSending = true;
    const send = (): void => {
      if (this.isGone || this.hasLeft || this.isLast) world.asked.delete(next.plan.id);
      else this.#sendRequest(next);
    };
    // Requests ahead are sent at once.
    if (this.outstanding.length > 0) send();
    else loop.after(next.plan.gapMs, send);
  }

  #sendRequest(asked: Asked): void {
    const { world } = this.client;
    const { plan } = asked;
    const { head, body } = requestBytes(plan);
    asked.connection = this;
    asked.sentAt = loop.now;
    asked.start = this.#queued;
    asked.headEnd = this.#queued + head.length;
    asked.end = plan.kind === 'unfinished' ? Infinity : asked.headEnd + body.length;
    this.#queued += head.length + body.length;
    this.outstanding.push(asked);
    this.#all.push(asked);
    world.report(`${this.name} sends request ${plan.id}, ${plan.kind}, ${head.length} + ${body.length} bytes`);
    const done = (): void => {
      this.#isSending = false;
      this.sendNext();
    };
    if (plan.expects && body.length > 0) {
      let isSent = false;
      const sendBody = (): void => {
        if (isSent) return;
        isSent = true;
        this.#expecting = undefined;
        this.#sendPieces(body, plan.pieces, plan.pieceMs, done);
      };
      this.#expecting = { asked, sendBody };
      this.#sendPieces(head, plan.pieces, plan.pieceMs, () => loop.after(500, sendBody));
    } else {
      this.#sendPieces(Buffer.concat([head, body]), plan.pieces, plan.pieceMs, done);
    }
  }

  #sendPieces(bytes: Buffer, pieces: number, pauseMs: number, done: () => void): void {
    if (this.isGone || this.hasLeft) return;
    const length = Math.ceil(bytes.length / pieces);
    this.#sendSome(bytes.subarray(0, length));
    if (pieces <= 1) done();
    else loop.after(pauseMs, () => this.#sendPieces(bytes.subarray(length), pieces - 1, pauseMs, done));
  }

  #sent = 0;

  #sendSome(bytes: Buffer): void {
    const { leaves } = this.client.plan;
    const left = leaves?.of === 'sent' ? leaves.after - this.#sent : Infinity;
    this.#sent += bytes.length;
    // A client that resets its connection sends a whole request first, others leave in the middle of it.
    const isWhole = leaves?.how === 'reset';
    this.send(isWhole ? bytes : bytes.subarray(0, left));
    if (bytes.length < left) return;
    if (isWhole) loop.after(10, () => this.#leave());
    else this.#leave();
  }

  #leave(): void {
    if (this.hasLeft || this.isGone) return;
    const how = this.client.plan.leaves?.how ?? 'close';
    this.client.world.report(`${this.name} leaves: ${how}`);
    this.hasLeft = true;
    this.client.hasLeft = true;
    this[how]();
    if (how !== 'end') this.#close();
  }

  // All requests have their replies.
  #finish(): void {
    if (this.isGone || this.hasLeft) return;
    // Some clients leave the connection to the gateway's time limit.
    if (this.client.plan.requests.length % 3 === 0 && !this.client.isStopped) return;
    this.#leaveQuietly();
  }

  #leaveQuietly(): void {
    this.hasLeft = true;
    this.close();
    this.#close();
  }

  heal(): void {
    this.client.world.checkIdle(this);
    this.read(true);
    if (this.outstanding.length === 0 && !this.client.hasMore && !this.hasLeft) this.#leaveQuietly();
  }

  /** The gateway has got more of what was sent. */
  onDelivered(hasEnded: boolean): void {
    const delivered = this.connection.toGateway.delivered;
    this.activeAt = loop.now;
    for (const asked of this.#all.slice(this.#delivered)) {
      if (delivered > asked.start && asked.headAt === undefined) {
        asked.headAt = loop.now;
        asked.generation = this.client.world.generation;
      }
      if (delivered >= asked.headEnd) asked.headEndAt ??= loop.now;
      if (delivered < asked.end) break;
      asked.wholeAt ??= loop.now;
      asked.wholeTurn ??= loop.turn;
      this.#delivered += 1;
    }
    if (hasEnded) this.client.world.onLeft(this.outstanding);
    // Bytes after the last reply are read and dropped.
    if (this.#hasEnded) return;
    const waiting = this.#all.find(({ repliedAt }) => repliedAt === undefined)?.end ?? Infinity;
    this.client.world.checkReads(this.connection.handle.turnReads, delivered - waiting, this.name);
  }

  /** Since when the rest of a body arrives whose reply was sent before; undefined if none does. */
  get restSince(): number | undefined {
    const arriving = this.#all[this.#delivered];
    if (arriving?.repliedAt === undefined) return undefined;
    return arriving.start === 0 ? this.openedAt : arriving.headAt;
  }

  /** The gateway writes a reply, or a part of one. */
  override onWrite = (bytes: string | Uint8Array): void => {
    this.activeAt = loop.now;
    const start = Buffer.from(bytes.slice(0, 12) as string).toString('latin1');
    if (!start.startsWith('HTTP/1.1 ') || start === 'HTTP/1.1 100') return;
    if (bytes.toString().includes('\r\nconnection: close')) this.#hasEnded = true;
    const { world } = this.client;
    if (this.#turn !== loop.turn) this.#turnStarts = 0;
    this.#turn = loop.turn;
    this.#turnStarts += 1;
    const asked = this.#all[this.#written];
    this.#written += 1;
    if (asked !== undefined) asked.repliedAt = loop.now;
    if (world.plan.host !== 'own' || world.plan.guardMs !== undefined) return;
    if (this.#turnStarts > startsPerTurn) world.fail('a connection gets its share of a turn, and no more', this.name);
    if (asked !== undefined) world.checkTurns(asked, this.client.plan.ahead);
  };

  onBytes(bytes: Buffer): void {
    this.#got += bytes.length;
    this.#chunks.push(bytes);
    this.#size += bytes.length;
    if (this.#size >= this.#needed) this.#read();
    const { stopsAfter = Infinity, stopsForMs, leaves } = this.client.plan;
    if (this.isGone || this.hasLeft) return;
    if (leaves?.of === 'got' && this.#got >= leaves.after) {
      this.#leave();
    } else if (this.#got >= stopsAfter && !this.client.isStopped && !this.hasStopped) {
      this.hasStopped = true;
      this.client.world.report(`${this.name} stops reading`);
      this.read(false);
      loop.after(stopsForMs, () => {
        this.client.world.checkStall(this);
        this.read(true);
      });
    }
  }

  #read(): void {
    const { world } = this.client;
    while (this.#size >= this.#needed && this.#size > 0) {
      const all = Buffer.concat(this.#chunks);
      this.#chunks = [all];
      const end = all.indexOf('\r\n\r\n') + 4;
      if (end === 3) {
        this.#needed = this.#size + 1;
        return;
      }
      const [line = '', ...lines] = all.toString('latin1', 0, end - 4).split('\r\n');
      const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(line)?.[1]);
      const [asked] = this.outstanding;
      const isCutOff = this.hasLeft && this.#all.at(-1)?.wholeAt === undefined;
      // Node itself answers a request that is cut off, also after its reply.
      if (asked === undefined && world.plan.host === 'node' && status === 400 && isCutOff) {
        this.#size = 0;
        return;
      }
      if (asked === undefined) return world.fail('one reply for each request', `${this.name} gets ${line}`);
      const headers = new Map(
        lines.map((each) => [each.slice(0, each.indexOf(':')).toLowerCase(), each.slice(each.indexOf(':') + 2)]),
      );
      if (headers.size !== lines.length) world.fail('a reply has each header once', line);
      const isHead =
        asked.plan.kind === 'head' && (status !== 408 || (asked.headEndAt ?? Infinity) < (asked.repliedAt ?? 0));
      const hasBody = status !== 100 && status !== 204 && !isHead;
      const length = hasBody ? Number(headers.get('content-length')) : 0;
      this.#needed = end + length;
      if (this.#size < this.#needed) return;
      const body = all.subarray(end, this.#needed);
      this.#chunks = [all.subarray(this.#needed)];
      this.#size -= this.#needed;
      this.#needed = 1;
      if (status === 100) {
        asked.continues += 1;
        if (!asked.plan.expects || asked.continues > 1)
          world.fail('`100 Continue` comes once, to who expects it', this.name);
        // The body of an earlier request may have been sent without waiting for it.
        if (this.#expecting?.asked === asked) this.#expecting.sendBody();
        continue;
      }
      this.outstanding.shift();
      const closes = headers.get('connection') === 'close';
      // The gateway cannot know whether the body will follow [RFC 9110, 10.1.1].
      if (this.#expecting?.asked === asked && !closes)
        world.fail('a reply instead of `100 Continue` is the last', this.name);
      if (closes || mayEnd(asked.plan)) this.isLast = true;
      world.checkReply(asked, { status, headers, body });
      if (!this.isLast) this.sendNext();
    }
  }

  onEnd(): void {
    if (this.#isOver) return;
    this.client.world.report(`${this.name}: the gateway ends the connection`);
    this.#checkLost();
    this.close();
    this.#close();
  }

  onReset(): void {
    if (this.#isOver) return;
    this.client.world.report(`${this.name}: the gateway resets the connection`);
    this.#checkLost();
    this.#close();
  }

  #checkLost(): void {
    if (!this.hasLeft || this.#size > 0) this.client.world.checkLost(this, this.#size > 0);
  }

  #close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.client.onClosed();
  }
}
