//! Settings of the builder's pools, and of the connections of all pools.

use corelane::{ConnectionLimits, NestedWait};

use super::orb::addresses;
use super::{Entry, entry};
use crate::draft::{DispatchKind, PoolDraft};
use crate::value::{
    Converted, RawValue, choice, integer, optional, positive_duration, size, size_in, spin_policy, text,
};

pub(super) const MAX_THREADS: i64 = 4096;

pub(super) const POOL: &[Entry<PoolDraft>] = &[
    entry(
        "dispatch",
        "reactive, thread-per-connection, leader-followers, half-sync-half-async",
        "leader-followers",
        |pool, value| {
            let names = [
                ("reactive", DispatchKind::Reactive),
                ("thread-per-connection", DispatchKind::ThreadPerConnection),
                ("leader-followers", DispatchKind::LeaderFollowers),
                ("half-sync-half-async", DispatchKind::HalfSyncHalfAsync),
            ];
            choice(value, &names).map(|kind| pool.dispatch = Some(kind))
        },
    ),
    entry("threads", "number", "4", |pool, value| {
        integer(value, 1..=MAX_THREADS).map(|threads| pool.threads = Some(threads))
    }),
    entry("max-threads", "number", "256", |pool, value| {
        integer(value, 1..=MAX_THREADS).map(|threads| pool.max_threads = Some(threads))
    }),
    entry("max-queued", "number", "1024", |pool, value| {
        integer(value, 1..=1_000_000).map(|requests| pool.max_queued = Some(requests))
    }),
    entry("listen", "list of addresses", "none", |pool, value| addresses(value).map(|list| pool.config.listen = list)),
    entry("nested-wait", "block, serve DEPTH, none", "none", |pool, value| {
        nested_wait(value).map(|wait| pool.config.nested_wait = wait)
    }),
    entry("spin", "never, adaptive TIME, always TIME, none", "none", |pool, value| {
        optional(value, spin_policy).map(|policy| pool.config.spin_policy = policy)
    }),
    entry("thread-stack-size", "size", "1MiB", |pool, value| {
        stack_size(value).map(|size| pool.config.thread_stack_size = size)
    }),
    entry("ceiling", "priority or none", "none", |pool, value| {
        ceiling(value).map(|max| pool.config.max_request_priority = max)
    }),
];

pub(super) const CONNECTIONS: &[Entry<ConnectionLimits>] = &[
    entry("max-connections", "number", "20000", |limits, value| {
        integer(value, 1..=100_000_000).map(|max| limits.max_connections = max)
    }),
    entry("max-buffered-bytes", "size", "256MiB", |limits, value| {
        size(value).map(|max| limits.max_buffered_bytes = max)
    }),
    entry("max-queued-bytes", "size", "64MiB", |limits, value| size(value).map(|max| limits.max_queued_bytes = max)),
    entry("read-stall-timeout", "duration", "30s", |limits, value| {
        positive_duration(value).map(|time| limits.read_stall_timeout = time)
    }),
    entry("first-request-timeout", "duration or none", "none", |limits, value| {
        optional(value, positive_duration).map(|time| limits.first_request_timeout = time)
    }),
    entry("write-timeout", "duration", "30s", |limits, value| {
        positive_duration(value).map(|time| limits.write_timeout = time)
    }),
];

pub(super) fn nested_wait(value: &RawValue) -> Converted<Option<NestedWait>> {
    optional(value, |value| {
        let words: Vec<&str> = text(value)?.split_whitespace().collect();
        let refusal = || "is \"block\", \"serve 8\" with a depth from 1 to 255, or \"none\"".to_owned();
        let serve = |max_depth: u8| (max_depth > 0).then_some(NestedWait::Serve { max_depth });
        match words.as_slice() {
            ["block"] => Ok(NestedWait::Block),
            ["serve", depth] => depth.parse().ok().and_then(serve).ok_or_else(refusal),
            _ => Err(refusal()),
        }
    })
}

pub(super) fn ceiling(value: &RawValue) -> Converted<Option<i16>> {
    optional(value, |value| integer(value, 0..=32767))
}

pub(super) fn stack_size(value: &RawValue) -> Converted<usize> {
    size_in(value, 16 << 10..=1 << 30)
}
