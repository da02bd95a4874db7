// How sure a model was of each token: darker where it was less, with what it might have written instead.

const percent = (logprob) => {
  const share = 100 * Math.exp(logprob);
  return `${share < 0.1 ? "under 0.1" : share.toFixed(share < 10 ? 1 : 0)} %`;
};
const visible = (token) => token.replaceAll("\n", "↵").replaceAll(" ", "·");

function probabilities(tokens) {
  const alternatives = make("p", { class: "note", "aria-live": "polite" }, "Choose a token to see its alternatives.");
  const spans = tokens.map(({ token, logprob, top }) => {
    const words = top.map((each) => `${visible(each.token)} ${percent(each.logprob)}`).join("   ");
    const tell = () => { alternatives.textContent = `${visible(token)} ${percent(logprob)}, of:   ${words}`; };
    const made = make("button", { type: "button", class: "token", title: `${percent(logprob)}, of: ${words}`, onclick: tell, onfocus: tell }, visible(token));
    made.style.setProperty("--doubt", `${Math.round(70 * (1 - Math.exp(logprob)))}%`);
    return made;
  });
  return make("details", { class: "tokens" }, make("summary", {}, `Probabilities of ${count(tokens.length, "token")}`), make("div", {}, ...spans), alternatives);
}
