//! Settings of the ORB itself.

use corelane::rt::Guarantee;
use corelane::{CharSet, ConnectionPoolExhaustedAction, Limits, OnewayBatch, RebindMode, SyncScope, Timeout, Version};
use corelane_net::AllowedUsers;
use corelane_wire::ior::ObjectUrl;

use super::{Entry, entry};
use crate::draft::{BuiltInTransport, Draft, OrbDraft, PreconnectDraft, SharedMemoryDraft};
use crate::value::{
    Converted, RawValue, boolean, choice, duration, excerpt, integer, list, optional, positive_duration, size, size_in,
    spin_policy, text,
};

const MANY: i64 = 1_000_000;

pub(super) const ROOT: &[Entry<OrbDraft>] = &[
    entry("listen", "list of addresses", "none", |orb, value| addresses(value).map(|list| orb.listen = list)),
    entry("publish", "list of addresses", "none", |orb, value| addresses(value).map(|list| orb.publish = list)),
    entry("transports", "list of tcp, unix, shared-memory", "tcp unix shared-memory", |orb, value| {
        let names = [
            ("tcp", BuiltInTransport::Tcp),
            ("unix", BuiltInTransport::Unix),
            ("shared-memory", BuiltInTransport::SharedMemory),
        ];
        list(value, |one| choice(one, &names)).map(|list| orb.transports = Some(list))
    }),
    entry("max-kept-memory", "size", "256MiB", |orb, value| size(value).map(|size| orb.max_kept_memory = Some(size))),
    entry("max-reply-memory", "size", "256MiB", |orb, value| size(value).map(|size| orb.max_reply_memory = Some(size))),
    entry("call-timeout", "duration or none", "30s", |orb, value| {
        let timeout = optional(value, positive_duration)?.map_or(Timeout::Never, Timeout::from);
        orb.call_policies.timeout = Some(timeout);
        Ok(())
    }),
    entry("connect-timeout", "duration", "10s", |orb, value| {
        positive_duration(value).map(|timeout| orb.call_policies.connect_timeout = Some(timeout))
    }),
    entry("sync-scope", "none, transport, server, target", "transport", |orb, value| {
        let names = [
            ("none", SyncScope::None),
            ("transport", SyncScope::Transport),
            ("server", SyncScope::Server),
            ("target", SyncScope::Target),
        ];
        choice(value, &names).map(|scope| orb.call_policies.sync_scope = Some(scope))
    }),
    entry("max-transient-retries", "number", "0", |orb, value| {
        integer(value, 0..=255).map(|retries| orb.call_policies.max_transient_retries = Some(retries))
    }),
    entry("rebind", "transparent, no-rebind, no-reconnect", "transparent", |orb, value| {
        let names = [
            ("transparent", RebindMode::Transparent),
            ("no-rebind", RebindMode::NoRebind),
            ("no-reconnect", RebindMode::NoReconnect),
        ];
        choice(value, &names).map(|mode| orb.call_policies.rebind = Some(mode))
    }),
    entry("on-pool-exhausted", "wait, multiplex", "wait", |orb, value| {
        let names =
            [("wait", ConnectionPoolExhaustedAction::Wait), ("multiplex", ConnectionPoolExhaustedAction::Multiplex)];
        choice(value, &names).map(|action| orb.on_connection_pool_exhausted = Some(action))
    }),
    entry("max-connections-per-server", "number", "32", |orb, value| {
        integer(value, 1..=MANY).map(|max| orb.max_connections_per_server = Some(max))
    }),
    entry("spin", "never, adaptive TIME, always TIME", "adaptive 50us", |orb, value| {
        spin_policy(value).map(|policy| orb.spin_policy = Some(policy))
    }),
    entry("drain-timeout", "duration", "2s", |orb, value| duration(value).map(|time| orb.drain_timeout = Some(time))),
    entry("idle-connection-timeout", "duration", "180s", |orb, value| {
        positive_duration(value).map(|time| orb.idle_connection_timeout = Some(time))
    }),
    entry("giop-version", "\"1.0\", \"1.1\", \"1.2\"", "1.2", |orb, value| {
        let names = [("1.0", Version::GIOP_1_0), ("1.1", Version::GIOP_1_1), ("1.2", Version::GIOP_1_2)];
        choice(value, &names).map(|version| orb.giop_version = Some(version))
    }),
    entry("native-char-set", "utf-8, iso-8859-1", "utf-8", |orb, value| {
        let names = [("utf-8", CharSet::Utf8), ("iso-8859-1", CharSet::Latin1)];
        choice(value, &names).map(|set| orb.native_char_set = Some(set))
    }),
    entry("fragment-size", "size or none", "none", |orb, value| {
        optional(value, |value| size_in(value, 64..=1 << 31)).map(|size| orb.fragment_size = size)
    }),
    entry("lock-memory", "true, false", "false", |orb, value| boolean(value).map(|locks| orb.locks_memory = locks)),
    entry("log-events", "true, false", "false", |orb, value| boolean(value).map(|logs| orb.logs_events = logs)),
    entry("require-guarantees", "list of guarantees", "none", |orb, value| {
        let guarantee = |value: &RawValue| {
            let name = text(value)?;
            let known = || super::unknown(name, Guarantee::ALL.iter().map(Guarantee::name));
            Guarantee::from_name(name).ok_or_else(|| format!("has an unknown guarantee {}", known()))
        };
        list(value, guarantee).map(|guarantees| orb.guarantees = guarantees)
    }),
    entry("default-initial-reference", "beginning of a reference", "none", |orb, value| {
        let prefix = text(value)?;
        check_reference(&format!("{prefix}/X"))?;
        orb.default_initial_reference = Some(prefix.to_owned());
        Ok(())
    }),
];

pub(super) const ONEWAY_BATCH: &[Entry<OnewayBatch>] = &[
    entry("max-bytes", "size", "16KiB", |batch, value| size(value).map(|size| batch.max_bytes = size)),
    entry("max-delay", "duration", "1ms", |batch, value| duration(value).map(|delay| batch.max_delay = delay)),
];

pub(super) const LIMITS: &[Entry<Limits>] = &[
    entry("max-message-size", "size", "64MiB", |limits, value| octets(value).map(|max| limits.max_message_size = max)),
    entry("max-string-length", "size", "16MiB", |limits, value| {
        octets(value).map(|max| limits.max_string_length = max)
    }),
    entry("max-sequence-length", "number", "67108864", |limits, value| {
        count(value).map(|max| limits.max_sequence_length = max)
    }),
    entry("max-decoded-bytes", "size", "512MiB", |limits, value| {
        size_in(value, 1..=u64::MAX).map(|max| limits.max_decoded_bytes = max)
    }),
    entry("max-nesting", "number", "128", |limits, value| count(value).map(|max| limits.max_nesting = max)),
    entry("max-values", "number", "262144", |limits, value| {
        count(value).map(|max| limits.max_valuetype_instances = max)
    }),
    entry("max-repository-ids", "number", "32", |limits, value| {
        count(value).map(|max| limits.max_repository_ids = max)
    }),
    entry("max-repository-id-length", "size", "512", |limits, value| {
        octets(value).map(|max| limits.max_repository_id_length = max)
    }),
    entry("max-service-contexts", "number", "128", |limits, value| {
        count(value).map(|max| limits.max_service_contexts = max)
    }),
    entry("max-profiles", "number", "64", |limits, value| count(value).map(|max| limits.max_profiles = max)),
    entry("max-components", "number", "64", |limits, value| count(value).map(|max| limits.max_tagged_components = max)),
    entry("max-lane-endpoints", "number", "1024", |limits, value| {
        count(value).map(|max| limits.max_lane_endpoints = max)
    }),
    entry("max-partial-messages", "number", "128", |limits, value| {
        count(value).map(|max| limits.max_partial_messages = max)
    }),
    entry("max-partial-bytes", "size", "64MiB", |limits, value| {
        octets(value).map(|max| limits.max_partial_message_bytes = max)
    }),
    entry("max-fragments", "number", "131072", |limits, value| count(value).map(|max| limits.max_fragments = max)),
    entry("max-outstanding-requests", "number", "4096", |limits, value| {
        count(value).map(|max| limits.max_outstanding_requests = max)
    }),
    entry("max-reference-text", "size", "1MiB", |limits, value| {
        octets(value).map(|max| limits.max_reference_text_length = max)
    }),
];

pub(super) const SHARED_MEMORY: &[Entry<SharedMemoryDraft>] = &[
    entry("allowed-users", "same, any", "same", |memory, value| {
        let names = [("same", AllowedUsers::SameUser), ("any", AllowedUsers::AnyUser)];
        choice(value, &names).map(|users| memory.allowed_users = Some(users))
    }),
    entry("max-lent-memory", "size", "128MiB", |memory, value| {
        size(value).map(|size| memory.max_lent_memory = Some(size))
    }),
    entry("spin", "never, adaptive TIME, always TIME", "adaptive 20us", |memory, value| {
        spin_policy(value).map(|policy| memory.spin_policy = Some(policy))
    }),
];

pub(super) const PRECONNECT: &[Entry<PreconnectDraft>] = &[
    entry("reference", "reference", "none", |preconnect, value| {
        reference(value).map(|text| preconnect.reference = Some(text))
    }),
    entry("priorities", "list of numbers", "0", |preconnect, value| {
        list(value, |one| integer(one, 0..=32767)).map(|list| preconnect.priorities = list)
    }),
    entry("connections", "number", "1", |preconnect, value| {
        integer(value, 1..=MANY).map(|count| preconnect.connections = count)
    }),
];

pub(super) fn set_initial_reference(draft: &mut Draft, name: &str, value: &RawValue) -> Converted<()> {
    if name.is_empty() {
        return Err("has no name".to_owned());
    }
    draft.initial_references.insert(name.to_owned(), reference(value)?);
    Ok(())
}

fn reference(value: &RawValue) -> Converted<String> {
    let written = text(value)?;
    check_reference(written)?;
    Ok(written.to_owned())
}

fn check_reference(text: &str) -> Converted<()> {
    let parsed = ObjectUrl::parse(text, &Limits::DEFAULT);
    parsed.map(drop).map_err(|error| format!("is no stringified reference: `{}`: {error}", excerpt(text)))
}

/// Converts addresses with a scheme. The ORB's transports check the part after the scheme.
pub(super) fn addresses(value: &RawValue) -> Converted<Vec<String>> {
    list(value, |one| {
        let address = text(one)?;
        let has_scheme = address.split_once(':').is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
        let refusal = || format!("is tcp:HOST:PORT, unix:PATH or shm:PATH, not `{}`", excerpt(address));
        if has_scheme { Ok(address.to_owned()) } else { Err(refusal()) }
    })
}

fn octets(value: &RawValue) -> Converted<u32> {
    size_in(value, 1..=u32::MAX.into())
}

fn count(value: &RawValue) -> Converted<u32> {
    integer(value, 1..=u32::MAX.into())
}
