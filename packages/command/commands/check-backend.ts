// `check` of the backend: requests the list of work items once, and explains a failure.

import type { ClientTls } from '../../core/http1/client-connection.ts';
import { backendPath } from '../../core/operations.ts';
import { withoutEndSlashes } from '../../core/text/addresses.ts';
import { showValue } from '../settings/describe.ts';
import type { Settings } from '../settings/settings.ts';
import type { CheckResult } from './command.ts';

export async function checkBackend(settings: Settings, tls: ClientTls | undefined): Promise<CheckResult> {
  // Loaded here, so that other commands do not load these files.
  const [{ Calls }, { describeCame }, { explainFailure }] = await Promise.all([
    import('../../backend-probe/calls.ts'),
    import('../../backend-probe/describe.ts'),
    import('../../backend-probe/failures.ts'),
  ]);
  const calls = new Calls(settings, tls);
  const call = await calls.make('list');
  await calls.close();
  const target = `${withoutEndSlashes(showValue('backendUrl', settings))}${backendPath}`;
  if (call.outcome === 'ok') {
    const { answer, reply, durationMs } = call;
    const text = `answered ${answer?.status ?? 200} with ${reply.body.length} bytes of JSON in ${Math.round(durationMs)} ms`;
    return { lines: [`backend: ${target} ${text}`] };
  }
  const { title, advice } = explainFailure(call, settings.backendUrl);
  return { problems: [`backend: ${target}: ${title}: ${describeCame(call)}`, `  ${advice}`] };
}
