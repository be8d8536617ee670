// Loads node:http as `require` does. With `import`, Node creates all of its exports, including a WebSocket client and
// its dependencies. That needs 16 MB and a tenth of a second more at start-up.

export const { createServer, STATUS_CODES } = process.getBuiltinModule('node:http');
