import { createFetchHandler } from 'work-item-gateway/fetch';

const call = createFetchHandler({
  backendUrl: process.env.BACKEND_URL ?? 'http://localhost:5104',
  itemIdParsing: 'whole',
});
// prettier-ignore
export { call as GET, call as POST, call as PUT, call as DELETE, call as HEAD, call as OPTIONS, call as PATCH };
