//! The resources of the page: HTML, its script and style, the counts as JSON, and Prometheus' text.

use std::fmt::Write as _;

use corelane_services::events::EventMonitor;
use corelane_services::events::corelane_events::{Channel, ChannelGateway, Consumer, GatewayState, Monitor as _};
use serde_json::{Value as Json, json};

use crate::events::stat::{channel_json, consumer_json, gateway_json, reasons, unstored_reasons};
use crate::text::json_line;

/// Maximum number of consumers in an answer, over all channels. The counts of a channel include all
/// its consumers.
const MAX_CONSUMERS: usize = 4_096;
const MAX_CHANNELS: usize = 4_096;
/// Maximum number of gateways of a channel in an answer.
const MAX_GATEWAYS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    Page,
    Script,
    Style,
    Counts,
    Metrics,
}

impl Resource {
    pub(super) fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/" => Self::Page,
            "/page.js" => Self::Script,
            "/page.css" => Self::Style,
            "/counts.json" => Self::Counts,
            "/metrics" => Self::Metrics,
            _ => return None,
        })
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Page => "text/html; charset=utf-8",
            Self::Script => "text/javascript; charset=utf-8",
            Self::Style => "text/css; charset=utf-8",
            Self::Counts => "application/json",
            Self::Metrics => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    pub(super) fn body(self, monitor: &EventMonitor) -> String {
        match self {
            Self::Page => include_str!("page.html").to_owned(),
            Self::Script => include_str!("page.js").to_owned(),
            Self::Style => include_str!("page.css").to_owned(),
            Self::Counts => json_line(&counts(&read(monitor))),
            Self::Metrics => metrics(&read(monitor)),
        }
    }
}

type ChannelCounts = (Channel, Vec<Consumer>, Vec<ChannelGateway>);

fn read(monitor: &EventMonitor) -> Vec<ChannelCounts> {
    let mut all: Vec<ChannelCounts> = Vec::new();
    let mut left = MAX_CONSUMERS;
    loop {
        let after = all.last().map_or("", |(channel, ..)| channel.name.as_str());
        // The monitor of this process raises no exception.
        let next = monitor.channels_after(after).unwrap_or_default();
        if next.is_empty() || all.len() >= MAX_CHANNELS {
            return all;
        }
        for channel in next {
            let consumers = consumers(monitor, &channel.name, left);
            left -= consumers.len();
            let gateways = gateways(monitor, &channel.name);
            all.push((channel, consumers, gateways));
        }
    }
}

fn gateways(monitor: &EventMonitor, name: &str) -> Vec<ChannelGateway> {
    let mut all: Vec<ChannelGateway> = Vec::new();
    while all.len() < MAX_GATEWAYS {
        let after = all.last().map_or(0, |gateway| gateway.proxy);
        let next = monitor.gateways_after(name, after).unwrap_or_default();
        if next.is_empty() {
            break;
        }
        all.extend(next);
    }
    all
}

fn consumers(monitor: &EventMonitor, name: &str, max: usize) -> Vec<Consumer> {
    let mut all: Vec<Consumer> = Vec::new();
    while all.len() < max {
        let after = all.last().map_or(0, |consumer| consumer.proxy);
        // A channel that has been destroyed has no consumers to show.
        let next = monitor.consumers_after(name, after).unwrap_or_default();
        if next.is_empty() {
            break;
        }
        all.extend(next);
    }
    all.truncate(max);
    all
}

fn counts(channels: &[ChannelCounts]) -> Json {
    let channel = |(channel, consumers, gateways): &ChannelCounts| {
        let mut shown = channel_json(channel);
        shown["shown_consumers"] = consumers.iter().map(|consumer| consumer_json(&channel.name, consumer)).collect();
        shown["shown_gateways"] = gateways.iter().map(|gateway| gateway_json(&channel.name, gateway)).collect();
        shown
    };
    json!({ "schema": 1, "channels": channels.iter().map(channel).collect::<Vec<_>>() })
}

type ChannelMetric = (&'static str, &'static str, &'static str, fn(&Channel) -> u64);

const CHANNEL_METRICS: [ChannelMetric; 12] = [
    ("published_total", "counter", "Events that the channel has routed.", |it| it.published),
    ("refused_total", "counter", "Events that the channel has refused.", |it| it.refused),
    ("unpublished_total", "counter", "Events that their supplier does not publish.", |it| it.unpublished),
    ("surplus_total", "counter", "Events beyond their declaration, for best effort.", |it| it.surplus.best_effort),
    ("surplus_dropped_total", "counter", "Events beyond their declaration, dropped.", |it| it.surplus.dropped),
    ("not_admitted_total", "counter", "Connections that the schedule refused.", |it| it.surplus.not_admitted),
    ("suppliers", "gauge", "Connected suppliers.", |it| it.suppliers.into()),
    ("consumers", "gauge", "Connected consumers.", |it| it.consumers.into()),
    ("routed_total", "counter", "Sets that filters have passed.", |it| it.sets.routed),
    ("delivered_total", "counter", "Sets that consumers have got.", |it| it.sets.delivered),
    ("queued", "gauge", "Sets that wait in queues.", |it| it.sets.queued),
    ("in_flight", "gauge", "Sets whose call is running.", |it| it.sets.in_flight),
];

type GatewayMetric = (&'static str, &'static str, &'static str, fn(&GatewayState) -> u64);

const GATEWAY_METRICS: [GatewayMetric; 8] = [
    ("gateway_connected", "gauge", "1 if a gateway reaches its destination.", |it| it.is_connected.into()),
    ("gateway_received_total", "counter", "Events that a gateway has got.", |it| it.received),
    ("gateway_forwarded_total", "counter", "Events that the destination of a gateway has taken.", |it| it.forwarded),
    ("gateway_duplicates_total", "counter", "Events that the destination had before.", |it| it.duplicates),
    ("gateway_returned_total", "counter", "Events that had been in the destination.", |it| it.returned),
    ("gateway_ttl_ended_total", "counter", "Events without time to live at a gateway.", |it| it.ttl_ended),
    ("gateway_waiting", "gauge", "Events that wait in a gateway.", |it| it.waiting),
    ("gateway_reconnects_total", "counter", "Times that a gateway has reached a channel again.", |it| it.reconnects),
];

fn write_gateways(text: &mut String, channels: &[ChannelCounts]) -> std::fmt::Result {
    let all = || channels.iter().flat_map(|(channel, _, gateways)| gateways.iter().map(move |it| (channel, it)));
    if all().next().is_none() {
        return Ok(());
    }
    let labels = |channel: &Channel, gateway: &ChannelGateway| {
        format!("channel=\"{}\",gateway=\"{}\"", label(&channel.name), gateway.proxy)
    };
    for (name, kind, help, value) in GATEWAY_METRICS {
        head(text, name, kind, help)?;
        for (channel, gateway) in all() {
            writeln!(text, "corelane_events_{name}{{{}}} {}", labels(channel, gateway), value(&gateway.state))?;
        }
    }
    head(text, "gateway_dropped_total", "counter", "Events that a gateway has lost.")?;
    for (channel, gateway) in all() {
        for (reason, count) in [("full", gateway.state.dropped_full), ("refused", gateway.state.dropped_refused)] {
            let labels = labels(channel, gateway);
            writeln!(text, "corelane_events_gateway_dropped_total{{{labels},reason=\"{reason}\"}} {count}")?;
        }
    }
    Ok(())
}

fn metrics(channels: &[ChannelCounts]) -> String {
    let mut text = String::new();
    let _ = write_metrics(&mut text, channels);
    text
}

fn write_metrics(text: &mut String, channels: &[ChannelCounts]) -> std::fmt::Result {
    for (name, kind, help, value) in CHANNEL_METRICS {
        head(text, name, kind, help)?;
        for (channel, ..) in channels {
            writeln!(text, "corelane_events_{name}{{channel=\"{}\"}} {}", label(&channel.name), value(channel))?;
        }
    }
    head(text, "dropped_total", "counter", "Sets that consumers have not got.")?;
    for (channel, ..) in channels {
        for (reason, count) in reasons(&channel.sets.dropped) {
            let channel = label(&channel.name);
            writeln!(text, "corelane_events_dropped_total{{channel=\"{channel}\",reason=\"{reason}\"}} {count}")?;
        }
    }
    head(text, "unstored_total", "counter", "Events without acknowledgement that are not in the channel's store.")?;
    for (channel, ..) in channels {
        for (reason, count) in unstored_reasons(&channel.unstored) {
            let channel = label(&channel.name);
            writeln!(text, "corelane_events_unstored_total{{channel=\"{channel}\",reason=\"{reason}\"}} {count}")?;
        }
    }
    head(text, "queue_sets", "gauge", "Sets in a queue of a consumer.")?;
    for (channel, consumers, _) in channels {
        for (consumer, queue) in consumers.iter().flat_map(|it| it.queues.iter().map(move |queue| (it.proxy, queue))) {
            let labels =
                format!("channel=\"{}\",consumer=\"{consumer}\",lane=\"{}\"", label(&channel.name), queue.lane);
            writeln!(text, "corelane_events_queue_sets{{{labels}}} {}", queue.sets)?;
        }
    }
    write_gateways(text, channels)
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(text, "# HELP corelane_events_{name} {help}\n# TYPE corelane_events_{name} {kind}")
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
