// Makes the gateway overwrite memory blocks when they are released. Then bytes that are used after their release are seen
// as wrong bytes. In this process, the import is enough; another process needs `overwriteFlag`.

const name = 'work-item-gateway.overwrites-released-blocks';
Reflect.set(globalThis, Symbol.for(name), true);

/** A flag of Node. */
export const overwriteFlag = `--import=data:text/javascript,globalThis[Symbol.for("${name}")]=true`;
