// Text from outside (an address, a certificate's name, an error's message) made safe to show: control characters could
// change what a terminal, or whoever reads there, takes for ours.

// C0, DEL and C1; what ends a line for some; what turns the direction of writing round.
const control = /[\p{Cc}\u2028\u2029\p{Bidi_Control}]/gu;

/** `text` with each control character as JSON would escape it: `\u001b`. */
export function escapeControls(text: string): string {
  return text.replace(control, escapeCharacter);
}

/** As `escapeControls`, with everything escaped that is not ASCII. */
export function escapeNonAscii(text: string): string {
  return text.replace(/[^ -~]/g, escapeCharacter);
}

function escapeCharacter(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
