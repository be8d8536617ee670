// A worker process that follows the test: it sends the messages in `say`, and prints all others that it gets.

process.on('message', (message: { readonly say?: unknown }) => {
  if (message.say === undefined) process.stdout.write(`${JSON.stringify(message)}\n`);
  else process.send?.(message.say);
});
process.on('disconnect', () => process.exit(0));
