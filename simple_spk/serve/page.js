// Records, sends and shows. The same file is the audio worklet, which hands samples to the page.
"use strict";

const RATE = 16000;

if (globalThis.AudioWorkletProcessor) {
  registerProcessor("samples", class extends AudioWorkletProcessor {
    process(inputs) {
      if (inputs[0].length) this.port.postMessage(inputs[0][0].slice());
      return true;
    }
  });
} else {
  startPage();
}

function startPage() {
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, text = "", more = {}) =>
    Object.assign(document.createElement(tag), { textContent: text }, more);
  const answer = find("#answer");
  const chosen = new Map(all("fieldset.drop").map((box) => [box, []]));  // files of each box

  // ---- tabs, with the arrow keys, too
  const tabs = all("[role=tab]");
  function open(tab) {
    for (const one of tabs) {
      const isOpen = one === tab;
      one.setAttribute("aria-selected", isOpen);
      one.tabIndex = isOpen ? 0 : -1;
      find(`#${one.getAttribute("aria-controls")}`).hidden = !isOpen;
    }
    answer.hidden = true;
  }
  tabs.forEach((tab, place) => {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(place + step + tabs.length) % tabs.length];
      next.focus();
      open(next);
    });
  });

  // ---- recordings: chosen, dropped or recorded
  function show(box) {
    const files = chosen.get(box);
    find(".chosen", box).replaceChildren(...files.map((file) => {
      const item = make("li");
      const audio = make("audio", "", { controls: true, src: URL.createObjectURL(file) });
      const remove = make("button", "Remove", { type: "button" });
      remove.setAttribute("aria-label", `Remove ${file.name}`);
      remove.addEventListener("click", () => {
        files.splice(files.indexOf(file), 1);
        show(box);
      });
      item.append(make("span", file.name), audio, remove);
      return item;
    }));
  }
  function add(box, files) {
    if (!box.dataset.several) chosen.get(box).length = 0;
    chosen.get(box).push(...files);
    show(box);
  }
  for (const box of chosen.keys()) {
    const input = find("input[type=file]", box);
    input.addEventListener("change", () => {
      add(box, input.files);
      input.value = "";
    });
    for (const kind of ["dragover", "dragleave", "drop"]) {
      box.addEventListener(kind, (event) => {
        event.preventDefault();
        box.classList.toggle("over", kind === "dragover");
        if (kind === "drop") add(box, event.dataTransfer.files);
      });
    }
    find(".record", box).addEventListener("click", () => record(box));
  }

  // ---- the microphone: samples as they are, as a codec would change the voice
  let stopRecording = null;
  async function record(box) {
    const button = find(".record", box);
    if (stopRecording) return stopRecording();
    let stream;
    const context = new AudioContext({ sampleRate: RATE });
    try {
      if (!navigator.mediaDevices) throw new Error("browsers allow it on https or localhost only");
      const plain = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
      stream = await navigator.mediaDevices.getUserMedia({ audio: plain });
      await context.audioWorklet.addModule("page.js");
    } catch (error) {
      context.close();
      return say("The microphone cannot be used", [String(error.message || error)], "bad");
    }
    const parts = [];
    const meter = find("meter", box);
    const node = new AudioWorkletNode(context, "samples", { channelCount: 1, channelCountMode: "explicit" });
    node.port.onmessage = ({ data }) => {
      parts.push(data);
      meter.value = Math.min(1, 4 * Math.max(...data.map(Math.abs)));
      const seconds = parts.reduce((sum, part) => sum + part.length, 0) / RATE;
      button.textContent = `■ Stop (${seconds.toFixed(0)} s)`;
    };
    context.createMediaStreamSource(stream).connect(node);
    meter.hidden = false;
    button.setAttribute("aria-pressed", "true");
    stopRecording = () => {
      stopRecording = null;
      node.port.onmessage = null;
      stream.getTracks().forEach((track) => track.stop());
      context.close();
      meter.hidden = true;
      button.setAttribute("aria-pressed", "false");
      button.textContent = "● Record";
      const number = chosen.get(box).length + 1;
      add(box, [new File([wav(parts)], `recording ${number}.wav`, { type: "audio/wav" })]);
    };
  }
  function wav(parts) {
    const count = parts.reduce((sum, part) => sum + part.length, 0);
    const view = new DataView(new ArrayBuffer(44 + 2 * count));
    const text = (at, letters) => [...letters].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
    text(0, "RIFF"); view.setUint32(4, 36 + 2 * count, true); text(8, "WAVEfmt ");
    view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, 1, true);
    view.setUint32(24, RATE, true); view.setUint32(28, 2 * RATE, true);
    view.setUint16(32, 2, true); view.setUint16(34, 16, true);
    text(36, "data"); view.setUint32(40, 2 * count, true);
    let at = 44;
    for (const part of parts) {
      for (const sample of part) {
        view.setInt16(at, 32767 * Math.max(-1, Math.min(1, sample)), true);
        at += 2;
      }
    }
    return view.buffer;
  }

  // ---- requests
  function headers() {
    const key = find("#key").value.trim();
    return key ? { Authorization: `Bearer ${key}` } : {};
  }
  async function ask(path, body) {
    const options = { headers: headers(), ...(body && { method: "POST", body }) };
    const response = await fetch(path, options);
    const content = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(content.detail || `The server answered ${response.status}.`);
    return content;
  }
  for (const form of all("form")) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (stopRecording) stopRecording();
      const body = new FormData();
      for (const field of all("input[name], select[name]", form)) {
        if (field.value.trim()) body.append(field.name, field.value.trim());
      }
      for (const box of all("fieldset.drop", form)) {
        if (body.has("name") && box.dataset.name === "first") continue;
        for (const file of chosen.get(box)) body.append(box.dataset.name, file, file.name);
      }
      const needed = all("fieldset.drop", form).map((box) => box.dataset.name);
      if (body.has("name") && form.id === "verify") needed.shift();
      if (!needed.every((name) => body.has(name))) {
        return say("A recording is missing", ["Record, or choose a file, on each side."], "bad");
      }
      const button = find(".send", form);
      button.disabled = true;
      say("Listening …", []);
      try {
        shown[form.id](await ask(form.id, body), chosen.get(all("fieldset.drop", form)[0])[0]);
      } catch (error) {
        say("No answer", [error.message], "bad");
      } finally {
        button.disabled = false;
        answer.focus();
      }
    });
  }

  // ---- answers in words
  const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
  const percent = (value) => `${Number((100 * value).toPrecision(3))} %`;
  function say(title, lines, look = "") {
    answer.className = `card ${look}`;
    answer.replaceChildren(make("h2", title), ...lines.map((line) => make("p", line)));
    answer.hidden = false;
  }
  function likelier(ratio) {
    if (ratio === null) return "The model is not calibrated, so it knows no probability.";
    return `The sound is ${times(ratio)}.`;
  }
  function times(ratio) {
    if (Math.abs(ratio) < Math.log(1.5)) return "about as likely from one speaker as from two";
    const value = Math.exp(Math.min(Math.abs(ratio), 700));
    const number = value < 100 ? value.toPrecision(2) : Number(value.toPrecision(2)).toLocaleString("en");
    return `${number} times likelier from ${ratio > 0 ? "one speaker" : "two speakers"}`;
  }
  function careful(qualities) {
    const found = new Set(qualities.flatMap((quality) => quality.warnings));
    return found.size ? [`Careful: ${[...found].join(", ")}.`] : [];
  }
  const estimate = "An estimate, not a proof. Not for access, forensics, or decisions about people.";
  const shown = {
    verify(found) {
      const quality = careful(found.qualities.flat());
      if (found.accepted === null) return say("Not enough evidence", [found.reason, ...quality], "bad");
      const lines = [likelier(found.log_likelihood_ratio)];
      if (found.probability !== null) lines.push(`Probability of one speaker: ${percent(found.probability)}.`);
      lines.push(`Rule: ${found.reason}.`, ...quality, estimate);
      say(found.accepted ? "Same speaker" : "Not accepted as the same speaker", lines, found.accepted ? "good" : "bad");
    },
    enroll(found) {
      const text = `${counted(found.recordings, "recording")}, ${found.seconds.toFixed(1)} s in all.`;
      say(`${found.name} is enrolled`, [text], "good");
      listNames();
    },
    identify(found) {
      const quality = careful(found.qualities);
      const title = found.accepted ? found.name
        : found.accepted === null ? "Not enough evidence" : "No enrolled speaker is accepted";
      const lines = [found.accepted === null ? found.reason : `Rule: ${found.reason}.`];
      say(title, [...lines, ...quality, estimate], found.accepted ? "good" : "bad");
      const list = make("ol");
      for (const one of found.candidates.slice(0, 3)) {
        const chance = one.probability === null ? `score ${one.score.toFixed(2)}`
          : `probability ${percent(one.probability)}, ${times(one.log_likelihood_ratio)}`;
        list.append(make("li", `${one.name}: ${chance}`));
      }
      answer.append(list, make("p", "The rest is the probability of somebody who is not enrolled.", { className: "quiet" }));
    },
    diarize(found, file) {
      const count = found.speakers.length;
      say(counted(count, "speaker"), [`Overlapping speech: ${found.overlap}.`, estimate], "good");
      const audio = make("audio", "", { controls: true, src: URL.createObjectURL(file) });
      answer.append(audio);
      found.speakers.forEach((one, number) => {
        const lane = make("div", "", { className: `lane c${number % 6}` });
        const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        svg.setAttribute("viewBox", `0 0 ${found.seconds} 1`);
        svg.setAttribute("preserveAspectRatio", "none");
        svg.setAttribute("role", "img");
        svg.setAttribute("aria-label", `${one.speaker}: ${counted(one.turns, "turn")}`);
        for (const turn of found.turns.filter((turn) => turn.speaker === one.speaker)) {
          const part = document.createElementNS("http://www.w3.org/2000/svg", "rect");
          const sizes = { x: turn.start, y: 0.1, width: turn.end - turn.start, height: 0.8 };
          for (const [name, value] of Object.entries(sizes)) part.setAttribute(name, value);
          svg.append(part);
        }
        svg.addEventListener("click", (event) => {
          const box = svg.getBoundingClientRect();
          audio.currentTime = ((event.clientX - box.left) / box.width) * found.seconds;
          audio.play();
        });
        const share = `${one.seconds.toFixed(1)} s, ${counted(one.turns, "turn")}`;
        lane.append(make("span", `${one.speaker}: ${share}`), svg);
        answer.append(lane);
      });
      const turns = make("details");
      const list = make("ol");
      for (const turn of found.turns) {
        const item = make("li");
        const play = make("button", `▶ ${turn.start.toFixed(1)} s`, { type: "button" });
        play.setAttribute("aria-label", `Play ${turn.speaker} at ${turn.start.toFixed(1)} seconds`);
        play.addEventListener("click", () => {
          audio.currentTime = turn.start;
          audio.play();
        });
        item.append(play, ` ${turn.speaker}, ${(turn.end - turn.start).toFixed(1)} s`);
        list.append(item);
      }
      turns.append(make("summary", `All ${found.turns.length} turns`), list);
      answer.append(turns);
    },
  };
  async function listNames() {
    try {
      const voices = await ask("voices");
      find("#names").replaceChildren(...voices.map((one) => make("option", "", { value: one.name })));
    } catch {
      find("#names").replaceChildren();  // the key may not be for it
    }
  }
  find("#key").addEventListener("change", listNames);
  if (!find("#access").open) listNames();
}
