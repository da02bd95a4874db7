// What went wrong, as a sentence that says what to do next.

class Failure extends Error {
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

const UNREACHABLE = "The server can't be reached. Check that “penstock serve” is running, then try again.";
const BROKE_OFF = "The connection was lost before the answer was complete. Try again.";

const SENTENCES = {
  401: () => "This server requires a valid API key.",
  403: () => `This server doesn't accept the host name ${location.hostname}. Open it by its address, or start it with --allowed-hosts ${location.hostname}.`,
  404: (told) => `The server can't find what this page requested: ${told}`,
  408: () => "The answer took longer than this server allows. Ask for fewer tokens.",
  413: () => "This conversation is too large for the server. Start a new one, or attach less.",
  429: (told) => `The server is too busy. Try again in a moment. It says: ${told}`,
  499: () => "This request was stopped in the live view, or by another program of yours.",
  500: () => "The server failed; see its log. Try again.",
  503: (told) => `The model can't answer right now. ${told}`,
};

function failureOf(status, told) {
  if (told === undefined) return new Failure(`Something between this page and the server answered with ${status}. Try again.`, status);
  return new Failure(ended(SENTENCES[status]?.(told) ?? `The server refused this: ${told}`), status);
}

const ended = (sentence) => /[.!?…]$/.test(sentence.trim()) ? sentence : `${sentence.trim()}.`;

// Of whatever was thrown: the browser's own errors say little to a person.
function sentenceOf(error, isUnderWay = false) {
  if (error instanceof Failure) return error.message;
  if (error instanceof TypeError) return isUnderWay ? BROKE_OFF : UNREACHABLE;
  return `This page has a bug (${error.name}: ${error.message}). Reload it and try again.`;
}
