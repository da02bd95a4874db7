// What went wrong, as a sentence that says what to do next.

class Failure extends Error {
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

const UNREACHABLE = "The server can't be reached. Look whether “penstock serve” still runs, then try again.";
const BROKE_OFF = "The connection broke off before the answer was complete. Try again.";

const SENTENCES = {
  401: () => "This server asks for an API key that it knows.",
  403: () => `This server doesn't go by the name ${location.hostname}. Open it by its address, or start it with --allowed-hosts ${location.hostname}.`,
  404: (told) => `The server doesn't know what was asked for: ${told}`,
  408: () => "The answer took longer than this server allows. Ask for fewer tokens.",
  413: () => "This conversation is larger than the server takes. Begin a new one, or attach less.",
  429: (told) => `The server has too much to do just now. Try again in a moment. It says: ${told}`,
  499: () => "This request was stopped in the live view, or by another program of yours.",
  500: () => "Something failed in the server; its log says what. Try again.",
  503: (told) => `The model can't answer now. ${told}`,
};

function failureOf(status, told) {
  if (told === undefined) return new Failure(`Something between this page and the server answered with ${status}. Try again.`, status);
  return new Failure(ended(SENTENCES[status]?.(told) ?? `The server can't do this: ${told}`), status);
}

const ended = (sentence) => /[.!?…]$/.test(sentence.trim()) ? sentence : `${sentence.trim()}.`;

// Of whatever was thrown: the browser's own errors say little to a person.
function sentenceOf(error, isUnderWay = false) {
  if (error instanceof Failure) return error.message;
  if (error instanceof TypeError) return isUnderWay ? BROKE_OFF : UNREACHABLE;
  return `This page made a mistake (${error.name}: ${error.message}). Reload it, and try again.`;
}
