// Reports requests to the log and the figures.

import type { GatewayObserver } from '../../core/call/gateway.ts';
import { outcomeOfMalformed } from '../../core/outcomes.ts';
import type { Records } from '../../figures/report.ts';
import { logCall } from '../log/call-line.ts';
import type { Logger } from '../log/log.ts';

export function createObserver(
  logger: Logger,
  { figures, failures, backend }: Records,
  showsClients: boolean,
): GatewayObserver {
  return {
    onCallEnd: (call) => {
      // The log line is written even if the figures throw.
      try {
        figures.record(call);
        failures.record(call, showsClients);
      } finally {
        logCall(logger, call, showsClients);
      }
      if (call.backendOutcome !== undefined && call.backendOutcome !== 'cancelled') {
        const hasNoAnswer = call.backendOutcome === 'unreachable' || call.backendOutcome === 'timed-out';
        backend.report(hasNoAnswer ? String(call.cause) : undefined, call.reason);
      }
    },
    onMalformed: (requestId, reply, code, address) => {
      const client = showsClients ? address : undefined;
      figures.recordMalformed(reply.status);
      failures.recordMalformed(requestId, reply.status, code, client);
      const { status } = reply;
      logger.info({ requestId, client, status, outcome: outcomeOfMalformed(status), code }, 'malformed request');
    },
    onStall: ({ requestId, operation, path, client, status, replyBytes }) => {
      figures.count('connection stalled');
      logger.info(
        { requestId, operation: operation?.name, path, client: showsClients ? client : undefined, status, replyBytes },
        'disconnected a client that stopped reading its reply',
      );
    },
    onBug: (error, call) => {
      figures.count('bug');
      logger.error({ requestId: call?.requestId, err: error }, 'internal error after the reply had begun');
    },
  };
}
