// Records of a topic, four ways: from the end, from an offset, from a time, of a key. All formats come as bytes.

import { get, path } from "./api.js";

const AT_MOST_BYTES = 1 << 20;

export class Browser {
  constructor(topic, signal) {
    this.topic = topic;
    this.signal = signal;
    this.windows = new Map();
    this.before = null;
  }

  async partitions() {
    this.ends = (await get(path("topics", this.topic, "partitions"), { signal: this.signal })).data;
    return this.ends;
  }

  /** The chosen partitions, each with its share of what is to be shown. */
  async chosen(partition, most) {
    const ends = await this.partitions();
    const wanted = partition === "" ? ends : ends.filter((one) => one.partition_id === Number(partition));
    return wanted.map((one) => ({ number: one.partition_id, start: one.log_start_offset, end: one.high_watermark, share: Math.ceil(most / wanted.length) }));
  }

  async fromEnd(partition, most) {
    const found = await this.chosen(partition, most);
    return this.read(found.map((one) => ({ ...one, from: Math.max(one.start, one.end - one.share) })), most);
  }

  async fromOffset(partition, most, offset) {
    const found = await this.chosen(partition, most);
    const within = (one) => Math.min(Math.max(offset, one.start), one.end);
    return this.read(found.map((one) => ({ ...one, from: within(one) })), most);
  }

  async fromTime(partition, most, ms) {
    const found = await this.chosen(partition, most);
    const places = await Promise.all(found.map(async (one) => {
      const at = await get(path("topics", this.topic, "partitions", one.number, "offset"), { query: { at: String(ms) }, signal: this.signal });
      return { ...one, from: at.offset < 0 ? one.end : at.offset };
    }));
    return this.read(places, most);
  }

  async ofKey(partition, most, key, format, further) {
    const query = { key, key_format: format, partition, max_records: Math.min(most, 100), format: "binary", before: further ? this.before : null };
    const found = await get(`${path("topics", this.topic)}/records:search`, { query, signal: this.signal });
    this.before = found.next_before;
    this.windows.clear();
    return { records: found.data.map((one) => ({ ...one, partition: found.partition_id })), scanned: found.scanned, partition: found.partition_id };
  }

  /** The next page, newer or older than the one that is shown. */
  async turn(newer, most) {
    const share = Math.ceil(most / Math.max(1, this.windows.size));
    const places = [...this.windows.values()].map((one) => {
      const from = newer ? one.next : Math.max(one.start, one.from - share);
      return { ...one, share: newer ? share : one.from - from, from };
    });
    return this.read(places, most);
  }

  async read(places, most) {
    const answers = await Promise.all(places.map((one) => this.fetch(one.number, one.from, one.share)));
    this.windows = new Map(places.map((one, at) => [one.number, { ...one, start: answers[at].log_start_offset, next: answers[at].next_offset }]));
    const records = answers.flatMap((answer) => answer.data.map((one) => ({ ...one, partition: answer.partition_id })));
    records.sort((one, other) => other.timestamp - one.timestamp || one.partition - other.partition || other.offset - one.offset);
    return { records: records.slice(0, Math.max(most, 1)) };
  }

  async fetch(number, offset, records) {
    if (records <= 0) return { partition_id: number, data: [], next_offset: offset, log_start_offset: 0 };
    const query = { offset, max_records: records, max_bytes: AT_MOST_BYTES, max_wait_ms: 0, format: "binary" };
    return get(path("topics", this.topic, "partitions", number, "records"), { query, signal: this.signal });
  }
}

/** What comes after the end that was there when it began. Woken by samples: it holds no connection of its own. */
export class Tail {
  constructor(browser, partition, onRecords) {
    this.browser = browser;
    this.partition = partition;
    this.onRecords = onRecords;
    this.next = new Map();
    this.working = false;
  }

  async start() {
    for (const one of await this.browser.partitions()) {
      if (this.partition === "" || one.partition_id === Number(this.partition)) this.next.set(one.partition_id, one.high_watermark);
    }
  }

  async wake(list) {
    if (this.working || this.next.size === 0) return;
    this.working = true;
    try {
      const ready = list.filter((one) => this.next.has(one.partition) && one.high_watermark > this.next.get(one.partition));
      const answers = await Promise.all(ready.map((one) => this.browser.fetch(one.partition, Math.max(this.next.get(one.partition), one.log_start_offset), 200)));
      const records = answers.flatMap((answer) => {
        this.next.set(answer.partition_id, answer.next_offset);
        return answer.data.map((one) => ({ ...one, partition: answer.partition_id }));
      });
      records.sort((one, other) => other.timestamp - one.timestamp || other.offset - one.offset);
      if (records.length) this.onRecords(records);
    } finally {
      this.working = false;
    }
  }
}
