// The one stream of this page: server-sent events, read with fetch so that the token travels in its header.
// A tab that nobody looks at has none: browsers allow six connections to a service, and each stream takes one.

import { authorization, refusalOf } from "./api.js";

const POINTS = 300;
const LONGEST_WAIT_MS = 15_000;

export class Live {
  constructor(onState) {
    this.points = [];
    this.sample = null;
    this.watched = null;
    this.listener = null;
    this.abort = null;
    this.onState = onState;
    document.addEventListener("visibilitychange", () => this.look());
    addEventListener("pagehide", () => this.close());
  }

  /** Follow this topic or group from now on; the listener is told the past first. */
  watch(watched, listener) {
    const same = this.watched && this.watched.topic === watched.topic && this.watched.group === watched.group;
    this.listener = listener;
    this.watched = watched;
    if (same && this.abort) {
      if (this.sample) listener(this.sample, this.points);
      return;
    }
    this.points = [];
    this.sample = null;
    this.close();
    this.look();
  }

  look() {
    if (document.hidden) {
      this.close();
      if (this.watched) this.onState("paused", "Paused");
    } else if (this.watched && !this.abort) {
      this.run();
    }
  }

  close() {
    this.abort?.abort();
    this.abort = null;
  }

  stop() {
    this.watched = null;
    this.listener = null;
    this.close();
  }

  async run() {
    const abort = new AbortController();
    this.abort = abort;
    let wait = 1_000;
    while (!abort.signal.aborted) {
      let text = "Reconnecting";
      try {
        this.onState("wait", "Connecting");
        await this.read(abort.signal, () => { wait = 1_000; });
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error.status === 401) {
          this.stop();
          dispatchEvent(new CustomEvent("sluice-signed-out", { detail: error }));
          return;
        }
        if (error.kafka) text = `No live figures: ${error.kafka}`;
      }
      if (abort.signal.aborted) return;
      this.onState("off", text);
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
  }

  async read(signal, onGood) {
    const query = new URLSearchParams(Object.entries(this.watched).filter(([, value]) => value));
    const response = await fetch(`/console/events?${query}`, { headers: authorization(), signal, cache: "no-store" });
    if (!response.ok) throw await refusalOf(response);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) this.take(event, onGood);
    }
  }

  take(event, onGood) {
    const [first, second] = event.split("\n");
    const name = first.slice("event: ".length);
    const body = JSON.parse(second.slice("data: ".length));
    if (name === "history") {
      this.points = body.points;
    } else if (name === "sample") {
      onGood();
      this.onState("on", "Live");
      this.sample = body;
      const { topics, groups, ...point } = body;
      if (this.points.at(-1)?.ms !== point.ms) this.points.push(point);
      if (this.points.length > POINTS) this.points.splice(0, this.points.length - POINTS);
      this.listener?.(body, this.points);
    } else if (name === "refused") {
      throw Object.assign(new Error(body.message), { status: 401, kafka: body.error });
    }
  }
}
