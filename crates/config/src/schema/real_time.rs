//! Settings of real-time ORBs: priorities, protocols, pools with and without lanes.

use std::sync::Arc;

use corelane::rt::{
    ConsecutiveMapping, DirectMapping, DscpTable, ExpiredRequestAction, LinearMapping, NativePriorityRange,
    OverrunAction, PriorityMapping, SchedulingClass, TcpProperties, UnixProperties, UnmatchedPriority,
};

use super::orb::addresses;
use super::pools::{MAX_THREADS, ceiling, nested_wait, stack_size};
use super::{Entry, entry};
use crate::draft::{LaneDraft, ProtocolName, RealTimeDraft, ThreadpoolDraft};
use crate::value::{
    Converted, RawValue, boolean, choice, integer, list, optional, positive_duration, range, size_in, spin_policy, text,
};

pub(super) const ROOT: &[Entry<RealTimeDraft>] = &[
    entry("scheduling", "fifo, round-robin, fair", "fifo", |real_time, value| {
        let names = [
            ("fifo", SchedulingClass::Fifo),
            ("round-robin", SchedulingClass::RoundRobin),
            ("fair", SchedulingClass::Fair),
        ];
        choice(value, &names).map(|class| real_time.config.scheduling = class)
    }),
    entry("priority-mapping", "linear, direct or consecutive, with a range", "linear 1..99", |real_time, value| {
        priority_mapping(value).map(|mapping| real_time.config.priority_mapping = mapping)
    }),
    entry("network-priorities", "list of PRIORITY=DSCP", "none", |real_time, value| {
        let step = |one: &RawValue| {
            let step =
                text(one)?.split_once('=').and_then(|(from, dscp)| Some((from.parse().ok()?, dscp.parse().ok()?)));
            step.ok_or_else(|| "is a list of PRIORITY=DSCP, such as \"30000=46\"".to_owned())
        };
        let table = DscpTable::new(list(value, step)?);
        let table = table.ok_or("has priorities from 0 to 32767, each once, with code points below 64")?;
        real_time.config.network_mapping = Some(Arc::new(table));
        Ok(())
    }),
    entry("expired-requests", "run, reject, lower-priority PRIORITY", "run", |real_time, value| {
        real_time.config.expired_request_action = match action(value)? {
            Action::Run => ExpiredRequestAction::Run,
            Action::Reject => ExpiredRequestAction::Reject,
            Action::LowerPriority(priority) => ExpiredRequestAction::LowerPriority(priority),
        };
        Ok(())
    }),
    entry("overruns", "run, reject, lower-priority PRIORITY", "run", |real_time, value| {
        real_time.config.overrun_action = match action(value)? {
            Action::Run => OverrunAction::Run,
            Action::Reject => OverrunAction::Reject,
            Action::LowerPriority(priority) => OverrunAction::LowerPriority(priority),
        };
        Ok(())
    }),
    entry("priority-bands", "list of LOW..HIGH", "none", |real_time, value| {
        let band = |one: &RawValue| {
            let (low, high) = range(one, 0..=i64::from(i16::MAX))?;
            let ends = i16::try_from(low).and_then(|low| Ok((low, i16::try_from(high)?)));
            ends.map_err(|_| "is a list of bands".to_owned())
        };
        let bands = list(value, band)?;
        real_time.config.client_policies.priority_bands = Some(bands);
        Ok(())
    }),
    entry("private-connection", "true, false", "false", |real_time, value| {
        boolean(value).map(|is_private| real_time.config.client_policies.private_connection = is_private)
    }),
    entry("client-protocols", "list of tcp, unix, shared-memory, other", "none", |real_time, value| {
        protocols(value).map(|list| real_time.client_protocols = list)
    }),
    entry("server-protocols", "list of tcp, unix, shared-memory, other", "none", |real_time, value| {
        protocols(value).map(|list| real_time.server_protocols = list)
    }),
];

pub(super) const TCP: &[Entry<TcpProperties>] = &[
    entry("send-buffer-size", "size", "0", |tcp, value| buffer(value).map(|size| tcp.send_buffer_size = size)),
    entry("recv-buffer-size", "size", "0", |tcp, value| buffer(value).map(|size| tcp.recv_buffer_size = size)),
    entry("keep-alive", "true, false", "true", |tcp, value| boolean(value).map(|on| tcp.keep_alive = on)),
    entry("dont-route", "true, false", "false", |tcp, value| boolean(value).map(|on| tcp.dont_route = on)),
    entry("no-delay", "true, false", "true", |tcp, value| boolean(value).map(|on| tcp.no_delay = on)),
    entry("enable-network-priority", "true, false", "true", |tcp, value| {
        boolean(value).map(|on| tcp.enable_network_priority = on)
    }),
];

pub(super) const UNIX: &[Entry<UnixProperties>] = &[
    entry("send-buffer-size", "size", "0", |unix, value| buffer(value).map(|size| unix.send_buffer_size = size)),
    entry("recv-buffer-size", "size", "0", |unix, value| buffer(value).map(|size| unix.recv_buffer_size = size)),
];

pub(super) const POOL: &[Entry<ThreadpoolDraft>] = &[
    entry("thread-stack-size", "size", "1MiB", |pool, value| {
        stack_size(value).map(|size| pool.thread_stack_size = Some(size))
    }),
    entry("static-threads", "number", "1", |pool, value| {
        integer(value, 1..=MAX_THREADS).map(|threads| pool.only.static_threads = Some(threads))
    }),
    entry("dynamic-threads", "number", "0", |pool, value| {
        integer(value, 0..=MAX_THREADS).map(|threads| pool.only.dynamic_threads = Some(threads))
    }),
    entry("default-priority", "priority", "0", |pool, value| {
        integer(value, 0..=32767).map(|priority| pool.only.default_priority = Some(priority))
    }),
    entry("listen", "list of addresses", "none", |pool, value| {
        addresses(value).map(|list| pool.only.listen = Some(list))
    }),
    entry("ceiling", "priority or none", "none", |pool, value| ceiling(value).map(|max| pool.only.ceiling = Some(max))),
    entry("cores", "list of numbers", "none", |pool, value| cores(value).map(|list| pool.only.cores = Some(list))),
    entry("max-buffered-requests", "number", "none", |pool, value| {
        integer(value, 1..=u32::MAX.into()).map(|max| pool.buffering_mut().max_requests = max)
    }),
    entry("max-buffered-bytes", "size", "none", |pool, value| {
        size_in(value, 1..=u64::MAX).map(|max| pool.buffering_mut().max_bytes = max)
    }),
    entry("idle-thread-timeout", "duration", "5s", |pool, value| {
        positive_duration(value).map(|time| pool.idle_thread_timeout = Some(time))
    }),
    entry("nested-wait", "block, serve DEPTH, none", "none", |pool, value| {
        nested_wait(value).map(|wait| pool.nested_wait = wait)
    }),
    entry("spin", "never, adaptive TIME, always TIME, none", "none", |pool, value| {
        optional(value, spin_policy).map(|policy| pool.spin_policy = policy)
    }),
    entry("unmatched-priority", "refuse, serve-in-arrival-lane", "refuse", |pool, value| {
        let names =
            [("refuse", UnmatchedPriority::Refuse), ("serve-in-arrival-lane", UnmatchedPriority::ServeInArrivalLane)];
        choice(value, &names).map(|action| pool.unmatched_priority = Some(action))
    }),
    entry("allow-borrowing", "true, false", "false", |pool, value| {
        boolean(value).map(|allows| pool.allow_borrowing = Some(allows))
    }),
];

pub(super) const LANE: &[Entry<LaneDraft>] = &[
    entry("priority", "priority", "0", |lane, value| {
        integer(value, 0..=32767).map(|priority| lane.config.priority = priority)
    }),
    entry("static-threads", "number", "1", |lane, value| {
        integer(value, 1..=MAX_THREADS).map(|threads| lane.config.static_threads = threads)
    }),
    entry("dynamic-threads", "number", "0", |lane, value| {
        integer(value, 0..=MAX_THREADS).map(|threads| lane.config.dynamic_threads = threads)
    }),
    entry("listen", "list of addresses", "none", |lane, value| addresses(value).map(|list| lane.config.listen = list)),
    entry("ceiling", "priority or none", "none", |lane, value| {
        ceiling(value).map(|max| lane.config.max_request_priority = max)
    }),
    entry("cores", "list of numbers", "none", |lane, value| cores(value).map(|list| lane.config.cores = list)),
    entry("reservation-runtime", "duration", "none", |lane, value| {
        positive_duration(value).map(|time| lane.runtime = Some(time))
    }),
    entry("reservation-deadline", "duration", "none", |lane, value| {
        positive_duration(value).map(|time| lane.deadline = Some(time))
    }),
    entry("reservation-period", "duration", "none", |lane, value| {
        positive_duration(value).map(|time| lane.period = Some(time))
    }),
    entry("spin", "never, adaptive TIME, always TIME, none", "none", |lane, value| {
        optional(value, spin_policy).map(|policy| lane.config.spin_policy = policy)
    }),
];

enum Action {
    Run,
    Reject,
    LowerPriority(i16),
}

fn action(value: &RawValue) -> Converted<Action> {
    let words: Vec<&str> = text(value)?.split_whitespace().collect();
    let refusal = || "is \"run\", \"reject\" or \"lower-priority 100\" with a priority of your own".to_owned();
    let priority = |word: &str| word.parse().ok().filter(|priority: &i16| *priority >= 0);
    match words.as_slice() {
        ["run"] => Ok(Action::Run),
        ["reject"] => Ok(Action::Reject),
        ["lower-priority", word] => priority(word).map(Action::LowerPriority).ok_or_else(refusal),
        _ => Err(refusal()),
    }
}

fn priority_mapping(value: &RawValue) -> Converted<Arc<dyn PriorityMapping>> {
    let refusal = || "is linear, direct or consecutive with a range, such as \"linear 1..99\"".to_owned();
    let (name, ends) = text(value)?.split_once(' ').ok_or_else(refusal)?;
    let (min, max) = range(&RawValue::Text(ends.to_owned()), 1..=99).map_err(|_| refusal())?;
    let ends = i32::try_from(min)
        .and_then(|min| Ok(NativePriorityRange { least_urgent: min, most_urgent: i32::try_from(max)? }));
    let range = ends.map_err(|_| refusal())?;
    match name {
        "linear" => Ok(Arc::new(LinearMapping(range))),
        "direct" => Ok(Arc::new(DirectMapping(range))),
        "consecutive" => Ok(Arc::new(ConsecutiveMapping(range))),
        _ => Err(refusal()),
    }
}

fn protocols(value: &RawValue) -> Converted<Vec<ProtocolName>> {
    let names = [
        ("tcp", ProtocolName::Tcp),
        ("unix", ProtocolName::Unix),
        ("shared-memory", ProtocolName::SharedMemory),
        ("other", ProtocolName::Other),
    ];
    list(value, |one| choice(one, &names))
}

fn buffer(value: &RawValue) -> Converted<i32> {
    let octets: u32 = size_in(value, 0..=1 << 30)?;
    i32::try_from(octets).map_err(|error| error.to_string())
}

fn cores(value: &RawValue) -> Converted<Vec<usize>> {
    list(value, |one| integer(one, 0..=65_535))
}
