/**
 * Show one turn of a section's games large, and step through them with the arrow keys. Without this nothing is
 * missing: every board stands in the columns below.
 */
export function stepThrough(section) {
  const stage = section.querySelector(".stage");
  const boards = stage.querySelector(".stage-boards");
  const slider = stage.querySelector("input");
  const output = stage.querySelector("output");
  const columns = [...section.querySelectorAll(".turns")];
  const last = Math.max(...columns.map((column) => column.children.length - 1));
  let now = 0;

  function show(turn) {
    now = Math.min(Math.max(turn, 0), last);
    slider.value = now;
    output.textContent = now === last ? "end" : `turn ${now + 1} of ${last}`;
    boards.replaceChildren(
      ...columns.map((column) => {
        const rows = [...column.children];
        const shown = rows[Math.min(now, rows.length - 1)];
        rows.forEach((row) => row.classList.toggle("now", row === shown));
        const frame = document.createElement("div");
        frame.className = "frame " + column.parentElement.className.replace("column", "").trim();
        const name = document.createElement("h4");
        name.textContent = column.dataset.when;
        frame.append(name, ...[...shown.children].map((part) => part.cloneNode(true)));
        return frame;
      }),
    );
  }

  function inView() {
    const place = section.getBoundingClientRect();
    return place.top < window.innerHeight * 0.7 && place.bottom > window.innerHeight * 0.3;
  }

  slider.max = last;
  slider.addEventListener("input", () => show(Number(slider.value)));
  stage.querySelectorAll("button").forEach((button) =>
    button.addEventListener("click", () => show(now + Number(button.dataset.by))),
  );
  document.addEventListener("keydown", (event) => {
    if (event.target === slider || event.altKey || event.ctrlKey || event.metaKey || !inView()) return;
    if (event.key === "ArrowLeft") show(now - 1);
    else if (event.key === "ArrowRight") show(now + 1);
  });
  columns.forEach((column) =>
    [...column.children].forEach((row, turn) => row.addEventListener("click", () => show(turn))),
  );
  stage.hidden = false;
  show(0);
}
