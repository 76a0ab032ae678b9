"use strict";
// Shows the counts of the channels once a second, with the rates since the second before.

let before = new Map();
let readAt = 0;

function sum(dropped) {
  return Object.values(dropped).reduce((total, count) => total + count, 0);
}

function reasons(dropped) {
  const found = Object.entries(dropped).filter((entry) => entry[1] > 0);
  return found.map((entry) => entry[0].replace("_", " ") + " " + entry[1]).join(", ");
}

function row(cells) {
  const line = document.createElement("tr");
  for (const cell of cells) {
    const place = document.createElement("td");
    place.textContent = cell.text === undefined ? cell : cell.text;
    if (cell.text !== undefined) {
      place.className = cell.isBad ? "bad" : "";
      place.title = cell.title;
    }
    line.append(place);
  }
  return line;
}

function dropped(counts) {
  const total = sum(counts);
  return { text: String(total), isBad: total > 0, title: reasons(counts) };
}

function show(counts, seconds) {
  const now = new Map();
  const rate = (key, count) => {
    now.set(key, count);
    const old = before.get(key);
    return old === undefined || seconds <= 0 ? "-" : Math.max(0, (count - old) / seconds).toFixed(1);
  };
  const channels = [];
  const consumers = [];
  const gateways = [];
  for (const channel of counts.channels) {
    const name = channel.channel;
    const sets = channel.sets;
    channels.push(row([name, channel.suppliers, channel.consumers, channel.published,
      rate("p " + name, channel.published), sets.delivered, rate("d " + name, sets.delivered),
      sets.queued, sets.in_flight, dropped(sets.dropped), dropped(channel.unstored), dropped(channel.surplus)]));
    for (const consumer of channel.shown_consumers) {
      const queues = consumer.queues.map((queue) => "lane " + queue.lane + ": " + queue.sets).join(", ");
      consumers.push(row([name, consumer.consumer, consumer.sets.routed, consumer.sets.delivered,
        rate("c " + name + " " + consumer.consumer, consumer.sets.delivered), queues,
        dropped(consumer.sets.dropped),
        { text: consumer.is_suspended ? "suspended" : "", isBad: true, title: "" }]));
    }
    for (const gateway of channel.shown_gateways) {
      gateways.push(row([name, gateway.gateway, gateway.destination, gateway.received, gateway.forwarded,
        rate("g " + name + " " + gateway.gateway, gateway.forwarded), gateway.duplicates, gateway.waiting,
        gateway.reconnects, dropped(gateway.dropped),
        { text: gateway.is_connected ? "connected" : "not connected", isBad: !gateway.is_connected, title: "" }]));
    }
  }
  before = now;
  document.getElementById("channels").replaceChildren(...channels);
  document.getElementById("consumers").replaceChildren(...consumers);
  document.getElementById("gateways").replaceChildren(...gateways);
}

async function update() {
  const state = document.getElementById("state");
  try {
    const answer = await fetch("counts.json");
    const counts = await answer.json();
    const now = performance.now();
    show(counts, readAt === 0 ? 0 : (now - readAt) / 1000);
    readAt = now;
    state.textContent = new Date().toLocaleTimeString();
    state.className = "";
  } catch (error) {
    state.textContent = "The server does not answer.";
    state.className = "bad";
  }
  setTimeout(update, 1000);
}

update();
