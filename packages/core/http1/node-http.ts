// node:http as `require` gives it. Importing it as a module makes Node build everything that it exports, a
// WebSocket client and what that needs among it: 16 MB and a tenth of a second of start-up for nothing.

export const { createServer, STATUS_CODES } = process.getBuiltinModule('node:http');
