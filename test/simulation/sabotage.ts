export function sabotage(): Promise<boolean> {
  return Promise.resolve(true);
}
