// Render formulas after every page load; Material replaces pages without reloading scripts.
document$.subscribe(({ body }) =>
  renderMathInElement(body, { delimiters: [{ left: "$$", right: "$$", display: true }, { left: "$", right: "$", display: false },
    { left: "\\(", right: "\\)", display: false }, { left: "\\[", right: "\\]", display: true }] }));
