//! Corelane in the benchmarks: servants, server processes, and clients in this or another process.

pub(crate) mod caller;
pub(crate) mod client;
pub(crate) mod dynamic;
pub(crate) mod keys;
pub(crate) mod levels;
pub(crate) mod relay;
pub(crate) mod servant;
pub(crate) mod server;
pub(crate) mod wide;

pub(crate) mod generated {
    #![allow(clippy::all, clippy::too_many_lines, missing_docs, unreachable_pub)]
    corelane::include_idl!("cubit");
}

use std::fmt;
use std::sync::Arc;

use corelane::rt::{DirectMapping, NativePriorityRange, RtConfig, SchedulingClass};
use corelane::{Dispatch, Limits, Orb, OrbBuilder, PoolConfig, SpinPolicy};

use crate::Failure;
use crate::placement::permits_fixed_priorities;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerArchitecture {
    /// A thread for each connection.
    PerConnection,
    /// This number of threads wait for requests. The thread that reads a request runs it.
    LeaderFollowers(usize),
    /// One thread reads requests into a queue, and this number of threads run them.
    HalfSync(usize),
    /// One thread reads, runs and answers all requests.
    Reactive,
}

impl ServerArchitecture {
    pub(crate) fn config(self) -> String {
        match self {
            ServerArchitecture::PerConnection => "thread per connection".to_owned(),
            ServerArchitecture::LeaderFollowers(threads) => format!("leader/followers, {threads}"),
            ServerArchitecture::HalfSync(threads) => format!("half-sync/half-async, {threads}"),
            ServerArchitecture::Reactive => "reactive".to_owned(),
        }
    }

    pub(crate) fn from_word(word: &str) -> Result<Self, Failure> {
        let (name, number) = word.split_once(':').unwrap_or((word, ""));
        match (name, number.parse().ok()) {
            ("per-connection", None) => Ok(ServerArchitecture::PerConnection),
            ("reactive", None) => Ok(ServerArchitecture::Reactive),
            ("leader-followers", Some(threads @ 1..=256)) => Ok(ServerArchitecture::LeaderFollowers(threads)),
            ("half-sync", Some(threads @ 1..=256)) => Ok(ServerArchitecture::HalfSync(threads)),
            _ => Err(Failure::new(format!("there is no architecture `{word}`"))),
        }
    }

    fn pool(self) -> PoolConfig {
        let dispatch = match self {
            ServerArchitecture::PerConnection => Dispatch::ThreadPerConnection { max_threads: 1000 },
            ServerArchitecture::LeaderFollowers(threads) => Dispatch::LeaderFollowers { threads },
            ServerArchitecture::HalfSync(threads) => Dispatch::HalfSyncHalfAsync { threads, max_queued: 4096 },
            ServerArchitecture::Reactive => Dispatch::Reactive,
        };
        PoolConfig::default().name("bench").dispatch(dispatch)
    }
}

impl fmt::Display for ServerArchitecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerArchitecture::PerConnection => f.write_str("per-connection"),
            ServerArchitecture::LeaderFollowers(threads) => write!(f, "leader-followers:{threads}"),
            ServerArchitecture::HalfSync(threads) => write!(f, "half-sync:{threads}"),
            ServerArchitecture::Reactive => f.write_str("reactive"),
        }
    }
}

pub(crate) fn limits() -> Limits {
    Limits { max_message_size: 80 << 20, max_sequence_length: 80 << 20, ..Limits::DEFAULT }
}

pub(crate) fn client_orb(connections: usize) -> Result<Orb, Failure> {
    build(Orb::builder(), connections)
}

/// Returns the settings of an ORB whose threads have native priorities that equal their CORBA
/// priorities. Without permission for fixed priorities, the threads keep their class.
pub(crate) fn direct_priorities() -> RtConfig {
    let rt = RtConfig::default().priority_mapping(Arc::new(DirectMapping(NativePriorityRange::FIXED_PRIORITIES)));
    if permits_fixed_priorities() { rt } else { rt.scheduling(SchedulingClass::Fair) }
}

pub(crate) fn prioritized_orb(connections: usize) -> Result<Orb, Failure> {
    build(Orb::builder().real_time(direct_priorities()), connections)
}

pub(crate) fn non_polling_client_orb(connections: usize) -> Result<Orb, Failure> {
    build(Orb::builder().spin_policy(SpinPolicy::Never), connections)
}

fn build(builder: OrbBuilder, connections: usize) -> Result<Orb, Failure> {
    let builder = builder.limits(limits()).max_connections_per_server(connections.max(32));
    builder.build().map_err(|error| Failure::new(error.to_string()))
}

impl From<corelane::SystemException> for Failure {
    fn from(exception: corelane::SystemException) -> Self {
        Failure::new(exception.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_parsed_back_from_their_words() {
        let (followers, queue) = (ServerArchitecture::LeaderFollowers(3), ServerArchitecture::HalfSync(2));
        for architecture in [ServerArchitecture::PerConnection, followers, queue, ServerArchitecture::Reactive] {
            assert_eq!(ServerArchitecture::from_word(&architecture.to_string()).unwrap(), architecture);
        }
        for word in ["", "leader-followers:0", "leader-followers:x", "half-sync", "reactive:1", "pool"] {
            assert!(ServerArchitecture::from_word(word).is_err(), "{word}");
        }
    }
}
