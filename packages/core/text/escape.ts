// Makes untrusted text safe to show, such as an address, a certificate's name or an error message. With control characters,
// such text could look like the gateway's own output.

// C0, DEL and C1; Unicode's line separators; characters that change the direction of writing.
const control = /[\p{Cc}\u2028\u2029\p{Bidi_Control}]/gu;

/** Returns `text` with each control character escaped as in JSON: `\u001b`. */
export function escapeControls(text: string): string {
  return text.replace(control, escapeCharacter);
}

/** Like `escapeControls`, but escapes everything except printable ASCII. */
export function escapeNonAscii(text: string): string {
  return text.replace(/[^ -~]/g, escapeCharacter);
}

function escapeCharacter(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
