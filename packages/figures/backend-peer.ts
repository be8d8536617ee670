// The backend, as an operator is told of its errors.

import type { Peer } from '../core/backend/describe-error.ts';

export const backendPeer: Peer = {
  name: 'the backend',
  plainScheme: 'http:',
  authorities: 'BACKEND_CA_FILE names a file with the authorities to trust',
};
