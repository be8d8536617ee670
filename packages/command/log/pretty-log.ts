// Formats log lines for people: short, coloured on a terminal, with control characters in values escaped.

import { createRequire } from 'node:module';

import { escapeControls } from '../../core/text/escape.ts';

/** Formats one JSON line as lines of text. */
export type Format = (line: string) => string;

/**
 * Returns undefined if pino-pretty is not installed. This package is optional, because a server does not need the 15
 * packages that come with it.
 */
export function createPrettyFormat(hasColours: boolean): Format | undefined {
  const prettyFactory = loadPinoPretty()?.prettyFactory;
  if (prettyFactory === undefined) return undefined;
  const pretty = prettyFactory({
    colorize: hasColours,
    ignore:
      'pid,hostname,requestId,operation,method,path,http,client,subject,agent,status,outcome,durationMs,backendMs,requestBytes,replyBytes,reason,cause',
    translateTime: 'SYS:HH:MM:ss.l',
    singleLine: true,
    messageFormat: (line, messageKey, _, { colors }) => describeLine(line, String(line[messageKey]), colors),
  });
  return (line) => pretty(escapeAll(JSON.parse(line)));
}

function loadPinoPretty(): typeof import('pino-pretty') | undefined {
  try {
    return createRequire(import.meta.url)('pino-pretty') as typeof import('pino-pretty');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}

// A stack begins with the error's message. This pattern matches only line ends inside the message: the line after such
// a line end is neither a stack frame nor a cause.
const lineInMessage = /\n(?! {4}at |caused by: )/g;

function escapeAll(value: unknown, name = ''): unknown {
  if (typeof value === 'string') {
    return name === 'stack'
      ? value.replace(lineInMessage, '\\u000a').split('\n').map(escapeControls).join('\n')
      : escapeControls(value);
  }
  if (Array.isArray(value)) return value.map((each) => escapeAll(each));
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [escapeControls(key), escapeAll(each, key)]));
  }
  return value;
}

function describeLine(
  line: Readonly<Record<string, unknown>>,
  message: string,
  { yellow, red }: Readonly<Record<'yellow' | 'red', (text: string) => string>>,
): string {
  const { status } = line;
  if (status === undefined) return message;
  const part = (before: string, name: string, after = ''): string => {
    const value = line[name];
    return typeof value === 'string' || typeof value === 'number' ? `${before}${value}${after}` : '';
  };
  const paint = Number(status) >= 500 ? red : Number(status) >= 400 ? yellow : String;
  const from = part(' ', 'client');
  // Malformed requests have neither a method nor a duration.
  if (line['durationMs'] === undefined) {
    return `${message}:${part(' ', 'path')} ${paint(part('', 'status'))}${part(': ', 'cause')}${from}${part(' ', 'requestId')}`;
  }
  const name = part('', 'operation') || part('', 'method');
  const times = `${part('', 'durationMs')} ms${part(', backend ', 'backendMs', ' ms')}, ${part('', 'replyBytes')} bytes`;
  return `${name}${part(' ', 'path')} ${paint(part('', 'status', part(' ', 'outcome')))}${part(': ', 'cause')} (${times})${from}${part(' ', 'requestId')}`;
}
