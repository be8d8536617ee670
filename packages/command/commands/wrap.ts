// Wraps text between words.

// Widths of the text, in columns, if the output is a file, and if it is a narrow terminal.
const columnsOfFile = 80;
const columnsMin = 40;

/** Returns `text` in lines, each with `indent` and a line end. `columns`: the terminal's width; undefined for a file. */
export function wrap(text: string, columns: number | undefined, indent: string): string {
  const width = Math.max(columnsMin, columns ?? columnsOfFile) - indent.length;
  return text.replace(new RegExp(`(.{1,${width}}|\\S+)(?: |$)`, 'g'), (_, words: string) => `${indent}${words}\n`);
}
