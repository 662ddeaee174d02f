
// A click on a lane or on a time plays the recording from there; the line shows where it is.
const audio = document.querySelector("audio");
const lanes = document.querySelector("#lanes");
const seconds = Number(lanes.dataset.seconds);
const status = document.querySelector("#status");
let end = Infinity;

function play(from, to) {
  end = to;
  audio.currentTime = from;
  audio.play().catch(() => {
    status.textContent = "The recording cannot be played here: choose its file below.";
  });
}
for (const lane of lanes.querySelectorAll("svg")) {
  lane.addEventListener("click", (event) => {
    const turn = event.target.closest("rect[data-start]");
    const box = lane.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * seconds;
    play(turn ? Math.max(Number(turn.dataset.start), at - 0.2) : at, Infinity);
  });
}
for (const button of document.querySelectorAll("button[data-start]")) {
  button.addEventListener("click", () => {
    play(Number(button.dataset.start), Number(button.dataset.end));
  });
}
audio.addEventListener("timeupdate", () => {
  if (audio.currentTime >= end) { audio.pause(); end = Infinity; }
  const share = Math.min(1, audio.currentTime / seconds);
  lanes.style.setProperty("--at", `${100 * share}%`);
});
audio.addEventListener("error", () => {
  status.textContent = "The recording cannot be played here: choose its file below.";
});
document.querySelector("#zoom").addEventListener("input", (event) => {
  lanes.style.setProperty("--zoom", 2 ** Number(event.target.value));
});
document.querySelector("#file").addEventListener("change", (event) => {
  if (event.target.files.length) {
    audio.src = URL.createObjectURL(event.target.files[0]);
    status.textContent = "";
  }
});
