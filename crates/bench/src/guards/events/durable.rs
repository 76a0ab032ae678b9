//! Durable channels: acknowledged events, and the replay of stored events.

use std::time::Duration;

use corelane::Any;
use corelane_services::events::corelane_events::DurableChannelRef;

use super::figures::{found, judged, label};
use crate::Failure;
use crate::address::LOOPBACK;
use crate::client_group::{ClientGroup, GroupClient};
use crate::guards::naming::{DiskFolder, Syncs};
use crate::harness::{ComparedQuantity, Group, MeasuredSubject, Progress, RunLength, Variant};
use crate::launch::start_durable_channel;
use crate::options::BenchOptions;
use crate::orb::client::object;
use crate::orb::client_orb;
use crate::report::Report;
use crate::sample::{Samples, time_calls};
use crate::targets::events as goals;

const SUPPLIERS: usize = 16;
/// Maximum number of acknowledged events in one turn of the measurement
/// ([`harness`](crate::harness)).
const MAX_PUBLISHED: usize = 2_000;
/// Number of events that one call of a replay returns.
const REPLAYED: u32 = 1_024;
/// Number of calls after which a replay starts again at the first stored event.
const CALLS: u64 = 8;
const MAX_REPLAYS: usize = 200;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

/// A supplier that waits for the acknowledgement of each event.
struct Publisher {
    channel: DurableChannelRef,
    value: Any,
}

impl GroupClient for Publisher {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        time_calls(count, into, || self.channel.publish(&self.value).map(drop)).map(drop)?;
        Ok(())
    }
}

/// Reads stored events again and again, [`REPLAYED`] in each call.
struct Replay {
    channel: DurableChannelRef,
    server: u32,
    call: u64,
}

impl Replay {
    fn read(&mut self) -> Result<(), Failure> {
        let position = self.call % CALLS * u64::from(REPLAYED);
        self.call += 1;
        let events = self.channel.events_after(position, REPLAYED, 0)?;
        let is_next = events.first().is_some_and(|event| event.number == position + 1);
        if events.len() == REPLAYED as usize && is_next {
            return Ok(());
        }
        Err(Failure::new(format!("a replay from {position} returned {} events", events.len())))
    }
}

impl MeasuredSubject for Replay {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        (0..warm_up).try_for_each(|_| self.read())?;
        time_calls(count, into, || self.read())
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.server)
    }
}

/// Measures acknowledged events of 1 and 16 suppliers beside syncs of the disk, and a replay.
pub(super) fn durable(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let folder = DiskFolder::new("events")?;
    let (server, reference) = start_durable_channel(LOOPBACK, &folder.store("events.db")?, &options.placement)?;
    let orb = client_orb(2 * SUPPLIERS)?;
    let channel = DurableChannelRef::unchecked_narrow(&object(&orb, &reference)?);
    let value = Any::new(&7_i32).map_err(failed)?;
    let suppliers = |count: usize| {
        let publisher = |_| Publisher { channel: channel.clone(), value: value.clone() };
        Box::new(ClientGroup::new((0..count).map(publisher).collect(), server.pid()))
    };
    progress.show("events: filling the store");
    let stored = usize::try_from(CALLS).unwrap_or(0) * REPLAYED as usize;
    suppliers(SUPPLIERS).run(0, stored, &mut Samples::with_capacity(stored))?;

    let ours = |config: String| label("Corelane", "tcp", "publish", config);
    let floor = label("floor", "none", "publish", "sync of one page");
    let (one, many) = (ours("durable, 1 supplier".to_owned()), ours(format!("durable, {SUPPLIERS} suppliers")));
    let variants = vec![
        Variant { label: floor.clone(), subject: Box::new(Syncs::new(&folder.0)?), against: Vec::new() },
        Variant { label: one.clone(), subject: suppliers(1), against: vec![0] },
        Variant { label: many.clone(), subject: suppliers(SUPPLIERS), against: vec![0] },
    ];
    let shortened = |most: usize, warm_up: usize| RunLength {
        warm_up: options.run_length.warm_up.min(warm_up),
        count: options.run_length.count.min(most),
        ..options.run_length
    };
    let title = "events: durable events, acknowledged".to_owned();
    let group = Group { title, compare: ComparedQuantity::Rate, variants };
    let figures = report.measure(group, &shortened(MAX_PUBLISHED, 50), &options.placement, progress)?;
    let mut values = Vec::new();
    for (label, rate) in
        [(&one, goals::MIN_DURABLE_TO_SYNC_RATIO_1_SUPPLIER), (&many, goals::MIN_DURABLE_TO_SYNC_RATIO_16_SUPPLIERS)]
    {
        let (Some(floor), Some(figure)) = (found(&figures, &floor), found(&figures, label)) else { continue };
        let ratio = floor.summary.per_s / figure.summary.per_s;
        values.push(judged(figure, "time per event against a sync", ratio, "x", 1.0 / rate));
    }

    let replay = label("Corelane", "tcp", "replay", format!("{REPLAYED} events in each call"));
    let subject = Box::new(Replay { channel: channel.clone(), server: server.pid(), call: 0 });
    let variants = vec![Variant { label: replay.clone(), subject, against: Vec::new() }];
    let title = "events: replay of a durable channel".to_owned();
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    let figures = report.measure(group, &shortened(MAX_REPLAYS, 8), &options.placement, progress)?;
    if let Some(figure) = found(&figures, &replay) {
        let time = figure.summary.mean_us / f64::from(REPLAYED);
        values.push(judged(figure, "time per event", time, "us", 1e6 / goals::MIN_REPLAYED_PER_S));
    }
    report.add_values("events: goals of durable channels", &values)
}
