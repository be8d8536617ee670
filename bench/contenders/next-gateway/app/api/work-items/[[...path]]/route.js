import { createFetchHandler } from '../../../../../../../dist/core/hosts/fetch/fetch.js';

const call = createFetchHandler({ backendUrl: process.env.BACKEND_URL ?? 'http://localhost:5104' });
export { call as GET, call as POST, call as PUT, call as DELETE };
