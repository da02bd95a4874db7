// Footnotes of one text: `[^1]` becomes a mark once `[^1]: …` is there, which stands where it is written.

class Notes {
  marks = new Map(); // by label: the marks that wait for their note
  places = new Map(); // by label: the note

  mark(label) {
    const made = make("span", {}, `[^${label}]`);
    if (this.places.has(label)) this.raise(label, made);
    else if (this.marks.has(label)) this.marks.get(label).push(made);
    else this.marks.set(label, [made]);
    return made;
  }

  place(label) {
    const place = make("div", { class: "note-text", tabindex: "-1" }, make("sup", {}, label), " ");
    this.places.set(label, place);
    for (const each of this.marks.get(label) ?? []) this.raise(label, each);
    this.marks.delete(label);
    return place;
  }

  raise(label, mark) {
    const go = () => {
      const place = this.places.get(label);
      place.scrollIntoView({ block: "nearest" });
      place.focus({ preventScroll: true });
    };
    mark.replaceChildren(make("sup", {}, make("button", { type: "button", class: "note-mark", "aria-label": `Footnote ${label}`, onclick: go }, label)));
  }
}
