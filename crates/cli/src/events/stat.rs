//! The commands `corelane events list`, `stat` and `top`, which print the counts of a server's
//! channels.

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use corelane::Orb;
use corelane_services::events::corelane_events::monitor::{ChannelNamedError, ConsumersAfterError};
use corelane_services::events::corelane_events::{
    Channel, ChannelGateway, Consumer, Deliveries, Drops, GatewayState, MonitorRef, NotStored, SurplusEvents,
};
use corelane_sys::clock::Monotonic;
use corelane_sys::{poll, signal};
use serde_json::{Value as Json, json};

use super::channel::message;
use super::options::{DEFAULT_SERVER, EventsArguments};
use crate::naming;
use crate::text::{excerpt, json_line, printable};

const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// After this number of channels, or of a channel's consumers, the commands request no more.
const MAX_READ: usize = 100_000;

fn monitor(orb: &Orb, arguments: &EventsArguments) -> Result<MonitorRef, String> {
    let default = format!("corbaloc::1.2@{DEFAULT_SERVER}/CorelaneEvents");
    let object = naming::object_of_word(orb, arguments.at.as_deref().unwrap_or(&default))?;
    let object = object.ok_or("the reference is nil")?;
    match object.is_a(MonitorRef::REPOSITORY_ID) {
        Ok(true) => Ok(MonitorRef::unchecked_narrow(&object)),
        Ok(false) => Err("the server has no monitor, which lists channels".to_owned()),
        Err(exception) => Err(message(exception)),
    }
}

fn channels(monitor: &MonitorRef) -> Result<Vec<Channel>, String> {
    let mut all: Vec<Channel> = Vec::new();
    loop {
        let after = all.last().map_or("", |channel| channel.name.as_str());
        let next = monitor.channels_after(after).map_err(message)?;
        // Without this check, a server that returns names out of order would be asked without end.
        if next.first().is_none_or(|first| first.name.as_str() <= after) || all.len() >= MAX_READ {
            return Ok(all);
        }
        all.extend(next);
    }
}

fn consumers(monitor: &MonitorRef, name: &str) -> Result<Vec<Consumer>, String> {
    let mut all: Vec<Consumer> = Vec::new();
    loop {
        let after = all.last().map_or(0, |consumer| consumer.proxy);
        let next = monitor.consumers_after(name, after).map_err(|error| match error {
            ConsumersAfterError::NoChannel(_) => no_channel(name),
            ConsumersAfterError::System(exception) => message(exception),
        })?;
        if next.first().is_none_or(|first| first.proxy <= after) || all.len() >= MAX_READ {
            return Ok(all);
        }
        all.extend(next);
    }
}

/// Returns the gateways of a channel, or no gateway if the call fails.
fn gateways(monitor: &MonitorRef, name: &str) -> Vec<ChannelGateway> {
    let mut all: Vec<ChannelGateway> = Vec::new();
    loop {
        let after = all.last().map_or(0, |gateway| gateway.proxy);
        let next = monitor.gateways_after(name, after).unwrap_or_default();
        if next.first().is_none_or(|first| first.proxy <= after) || all.len() >= MAX_READ {
            return all;
        }
        all.extend(next);
    }
}

fn no_channel(name: &str) -> String {
    format!("the server has no channel `{}`", excerpt(name))
}

pub(super) fn reasons(drops: &Drops) -> [(&'static str, u64); 7] {
    [
        ("queue_full", drops.queue_full),
        ("replaced", drops.replaced),
        ("expired", drops.expired),
        ("suspended", drops.suspended),
        ("failed", drops.failed),
        ("disconnected", drops.disconnected),
        ("nested", drops.nested),
    ]
}

pub(super) fn unstored_reasons(unstored: &NotStored) -> [(&'static str, u64); 4] {
    [
        ("queue_full", unstored.queue_full),
        ("size", unstored.size),
        ("no_room", unstored.no_room),
        ("failed", unstored.failed),
    ]
}

fn dropped(drops: &Drops) -> u64 {
    reasons(drops).iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

fn drops_text(drops: &Drops) -> String {
    reasons_text(&reasons(drops))
}

fn reasons_text(reasons: &[(&str, u64)]) -> String {
    let found = reasons.iter().filter(|(_, count)| *count > 0);
    let texts: Vec<String> = found.map(|(reason, count)| format!("{reason} {count}")).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

fn drops_json(drops: &Drops) -> Json {
    reasons(drops).into_iter().map(|(reason, count)| (reason.to_owned(), Json::from(count))).collect()
}

fn deliveries_json(sets: &Deliveries) -> Json {
    json!({
        "routed": sets.routed,
        "delivered": sets.delivered,
        "queued": sets.queued,
        "in_flight": sets.in_flight,
        "dropped": drops_json(&sets.dropped),
    })
}

pub(super) fn channel_json(channel: &Channel) -> Json {
    json!({
        "channel": channel.name,
        "published": channel.published,
        "refused": channel.refused,
        "unpublished": channel.unpublished,
        "suppliers": channel.suppliers,
        "consumers": channel.consumers,
        "sets": deliveries_json(&channel.sets),
        "unstored": unstored_reasons(&channel.unstored)
            .into_iter()
            .map(|(reason, count)| (reason.to_owned(), Json::from(count)))
            .collect::<Json>(),
        "surplus": {
            "best_effort": channel.surplus.best_effort,
            "dropped": channel.surplus.dropped,
            "not_admitted": channel.surplus.not_admitted,
        },
    })
}

pub(super) fn consumer_json(channel: &str, consumer: &Consumer) -> Json {
    let of_type = |it: &corelane_services::events::corelane_events::TypeDrops| json!({ "type": it.event_type, "dropped": drops_json(&it.dropped) });
    let queue = |queue: &corelane_services::events::corelane_events::Queue| json!({ "lane": queue.lane, "sets": queue.sets, "bytes": queue.bytes });
    json!({
        "channel": channel,
        "consumer": consumer.proxy,
        "sets": deliveries_json(&consumer.sets),
        "drops_by_type": consumer.drops_by_type.iter().map(of_type).collect::<Vec<_>>(),
        "queues": consumer.queues.iter().map(queue).collect::<Vec<_>>(),
        "is_suspended": consumer.is_suspended,
    })
}

pub(super) fn gateway_json(channel: &str, gateway: &ChannelGateway) -> Json {
    let ChannelGateway { proxy, state } = gateway;
    json!({
        "channel": channel,
        "gateway": proxy,
        "destination": state.destination,
        "is_connected": state.is_connected,
        "received": state.received,
        "forwarded": state.forwarded,
        "duplicates": state.duplicates,
        "returned": state.returned,
        "ttl_ended": state.ttl_ended,
        "dropped": { "full": state.dropped_full, "refused": state.dropped_refused },
        "waiting": state.waiting,
        "reconnects": state.reconnects,
    })
}

fn gateway_lines(gateway: &ChannelGateway) -> String {
    let ChannelGateway { proxy, state } = gateway;
    let GatewayState { destination, received, forwarded, duplicates, returned, ttl_ended, waiting, .. } = state;
    let connected = if state.is_connected { "connected" } else { "not connected" };
    format!(
        "  gateway {proxy} to {}: {connected}, reconnects {}\n    received {received}, forwarded {forwarded}, \
         duplicates {duplicates}, returned {returned}, ttl ended {ttl_ended}, waiting {waiting}\n    \
         dropped: full {}, refused {}\n",
        printable(destination),
        state.reconnects,
        state.dropped_full,
        state.dropped_refused
    )
}

fn channel_lines(channel: &Channel) -> String {
    let Channel { published, refused, unpublished, suppliers, consumers, sets, unstored, surplus, .. } = channel;
    let name = printable(&channel.name);
    let Deliveries { routed, delivered, queued, in_flight, .. } = sets;
    let unstored = unstored_reasons(unstored);
    let not_stored = if unstored.iter().all(|(_, count)| *count == 0) {
        String::new()
    } else {
        format!("  not stored: {}\n", reasons_text(&unstored))
    };
    let SurplusEvents { best_effort, dropped, not_admitted } = *surplus;
    let beyond_schedule = if best_effort + dropped + not_admitted == 0 {
        String::new()
    } else {
        format!(
            "  beyond the schedule: best effort {best_effort}, dropped {dropped}, connections refused {not_admitted}\n"
        )
    };
    format!(
        "{name}: {suppliers} suppliers, {consumers} consumers\n  \
         events: published {published}, refused {refused}, unpublished {unpublished}\n  \
         sets: routed {routed}, delivered {delivered}, queued {queued}, in flight {in_flight}\n  \
         dropped: {}\n{not_stored}{beyond_schedule}",
        drops_text(&sets.dropped)
    )
}

fn consumer_lines(consumer: &Consumer) -> String {
    let Deliveries { routed, delivered, queued, in_flight, .. } = consumer.sets;
    let suspended = if consumer.is_suspended { ", suspended" } else { "" };
    let mut lines = format!(
        "  consumer {}: routed {routed}, delivered {delivered}, queued {queued}, in flight {in_flight}{suspended}\n",
        consumer.proxy
    );
    for queue in &consumer.queues {
        lines += &format!("    lane {}: {} sets, {} bytes\n", queue.lane, queue.sets, queue.bytes);
    }
    for it in &consumer.drops_by_type {
        lines += &format!("    dropped of type {}: {}\n", it.event_type, drops_text(&it.dropped));
    }
    lines
}

fn print(out: &mut dyn Write, text: &str) -> bool {
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

pub(super) fn list(arguments: &EventsArguments, out: &mut dyn Write) -> Result<(), String> {
    let orb = Orb::new().map_err(message)?;
    for channel in channels(&monitor(&orb, arguments)?)? {
        let name = || format!("{}\n", printable(&channel.name));
        print(out, &if arguments.is_json { json_line(&json!({ "channel": channel.name })) } else { name() });
    }
    Ok(())
}

pub(super) fn stat(arguments: &EventsArguments, out: &mut dyn Write) -> Result<(), String> {
    let orb = Orb::new().map_err(message)?;
    let monitor = monitor(&orb, arguments)?;
    if arguments.channel.is_empty() {
        for channel in channels(&monitor)? {
            let text = if arguments.is_json { json_line(&channel_json(&channel)) } else { channel_lines(&channel) };
            print(out, &text);
        }
        return Ok(());
    }
    let name = arguments.channel.as_str();
    let channel = monitor.channel_named(name).map_err(|error| match error {
        ChannelNamedError::NoChannel(_) => no_channel(name),
        ChannelNamedError::System(exception) => message(exception),
    })?;
    print(out, &if arguments.is_json { json_line(&channel_json(&channel)) } else { channel_lines(&channel) });
    for consumer in consumers(&monitor, name)? {
        print(
            out,
            &if arguments.is_json { json_line(&consumer_json(name, &consumer)) } else { consumer_lines(&consumer) },
        );
    }
    for gateway in gateways(&monitor, name) {
        let json = || json_line(&gateway_json(name, &gateway));
        print(out, &if arguments.is_json { json() } else { gateway_lines(&gateway) });
    }
    Ok(())
}

/// Prints the channels with their rates until a termination signal, until `--count` tables are
/// printed, or until the reader closes the pipe.
pub(super) fn top(arguments: &EventsArguments, out: &mut dyn Write) -> Result<(), String> {
    let termination = signal::termination().map_err(message)?;
    let orb = Orb::new().map_err(message)?;
    let monitor = monitor(&orb, arguments)?;
    let interval = arguments.interval.unwrap_or(DEFAULT_INTERVAL);
    let mut before: HashMap<String, Channel> = HashMap::new();
    let (mut read_at, mut tables) = (Monotonic::now(), 0);
    loop {
        let found = channels(&monitor)?;
        let (now, seconds) = (Monotonic::now(), read_at.elapsed().as_secs_f64());
        read_at = now;
        if !print(out, &table(&found, &before, seconds)) {
            return Ok(());
        }
        before = found.into_iter().map(|channel| (channel.name.clone(), channel)).collect();
        tables += 1;
        if arguments.count.is_some_and(|count| tables >= count) {
            return Ok(());
        }
        poll::wait_readable_any([termination.as_fd()], Some(now + interval)).map_err(message)?;
        if termination.is_requested() {
            return Ok(());
        }
    }
}

fn table(channels: &[Channel], before: &HashMap<String, Channel>, seconds: f64) -> String {
    let mut text = format!(
        "{:<24} {:>9} {:>9} {:>12} {:>12} {:>8} {:>10}\n",
        "CHANNEL", "SUPPLIERS", "CONSUMERS", "EVENTS/S", "DELIVERED/S", "QUEUED", "DROPPED"
    );
    for channel in channels {
        let old = before.get(&channel.name);
        let rate = |now: u64, old: Option<u64>| {
            let difference = old.map_or(0, |old| now.saturating_sub(old)) as f64;
            if seconds > 0.0 { difference / seconds } else { 0.0 }
        };
        text += &format!(
            "{:<24} {:>9} {:>9} {:>12.1} {:>12.1} {:>8} {:>10}\n",
            printable(&channel.name),
            channel.suppliers,
            channel.consumers,
            rate(channel.published, old.map(|old| old.published)),
            rate(channel.sets.delivered, old.map(|old| old.sets.delivered)),
            channel.sets.queued,
            dropped(&channel.sets.dropped),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_with_events_that_are_not_stored_has_a_line_with_the_reasons() {
        let mut channel = Channel { name: "flight".to_owned(), ..Channel::default() };
        assert!(!channel_lines(&channel).contains("not stored"));
        channel.unstored = NotStored { no_room: 3, failed: 1, ..NotStored::default() };
        assert!(channel_lines(&channel).ends_with("\n  not stored: no_room 3, failed 1\n"));
        assert_eq!(channel_json(&channel)["unstored"]["no_room"], 3);
    }

    #[test]
    fn channel_with_surplus_has_a_line_with_the_counts() {
        let mut channel = Channel { name: "flight".to_owned(), ..Channel::default() };
        assert!(!channel_lines(&channel).contains("schedule"));
        channel.surplus = SurplusEvents { best_effort: 3, dropped: 0, not_admitted: 1 };
        let line = "\n  beyond the schedule: best effort 3, dropped 0, connections refused 1\n";
        assert!(channel_lines(&channel).ends_with(line));
        assert_eq!(channel_json(&channel)["surplus"]["best_effort"], 3);
    }

    #[test]
    fn table_has_rates_since_the_table_before() {
        let channel = |published, delivered| Channel {
            name: "flight".to_owned(),
            published,
            sets: Deliveries { delivered, dropped: Drops { expired: 3, ..Drops::default() }, ..Deliveries::default() },
            ..Channel::default()
        };
        let before = HashMap::from([("flight".to_owned(), channel(10, 20))]);
        let text = table(&[channel(30, 21)], &before, 2.0);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["flight", "0", "0", "10.0", "0.5", "0", "3"]);
        // The first table has no earlier counts, and a server that started again has smaller
        // counts. In both cases the rate is 0.
        assert!(table(&[channel(30, 21)], &HashMap::new(), 0.0).contains(" 0.0 "));
        assert!(table(&[channel(1, 1)], &before, 2.0).contains(" 0.0 "));
    }
}
