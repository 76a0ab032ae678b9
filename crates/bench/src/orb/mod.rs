//! Corelane as it is measured: servants and servers in processes of their own, the client in ours.

pub(crate) mod client;
pub(crate) mod relay;
pub(crate) mod servant;
pub(crate) mod server;
pub(crate) mod wide;

/// The code that the IDL compiler makes from idl/cubit.idl.
pub(crate) mod generated {
    #![allow(clippy::all, clippy::too_many_lines, missing_docs, unreachable_pub)]
    corelane::include_idl!("cubit");
}

use std::fmt;

use corelane::{Dispatch, PoolConfig};

use crate::Failure;

/// How a server gives requests to threads; as text, a word of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    /// A thread for each connection.
    PerConnection,
    /// So many threads that take turns at waiting.
    LeaderFollowers(usize),
    /// One thread for all.
    Reactive,
}

impl Architecture {
    /// As labels say it.
    pub(crate) fn config(self) -> String {
        match self {
            Architecture::PerConnection => "thread per connection".to_owned(),
            Architecture::LeaderFollowers(1) => "leader/followers, 1".to_owned(),
            Architecture::LeaderFollowers(threads) => format!("leader/followers, {threads}"),
            Architecture::Reactive => "reactive".to_owned(),
        }
    }

    pub(crate) fn from_word(word: &str) -> Result<Self, Failure> {
        let threads = word.strip_prefix("leader-followers:").and_then(|number| number.parse().ok());
        match (word, threads) {
            ("per-connection", _) => Ok(Architecture::PerConnection),
            ("reactive", _) => Ok(Architecture::Reactive),
            (_, Some(threads @ 1..=256)) => Ok(Architecture::LeaderFollowers(threads)),
            _ => Err(Failure::new(format!("there is no architecture `{word}`"))),
        }
    }

    fn pool(self) -> PoolConfig {
        let dispatch = match self {
            Architecture::PerConnection => Dispatch::ThreadPerConnection { most: 1000 },
            Architecture::LeaderFollowers(threads) => Dispatch::LeaderFollowers { threads },
            Architecture::Reactive => Dispatch::Reactive,
        };
        PoolConfig { name: "bench".into(), dispatch, ..PoolConfig::default() }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Architecture::PerConnection => f.write_str("per-connection"),
            Architecture::LeaderFollowers(threads) => write!(f, "leader-followers:{threads}"),
            Architecture::Reactive => f.write_str("reactive"),
        }
    }
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
    fn architectures_survive_as_words() {
        for architecture in [Architecture::PerConnection, Architecture::LeaderFollowers(3), Architecture::Reactive] {
            assert_eq!(Architecture::from_word(&architecture.to_string()).unwrap(), architecture);
        }
        for word in ["", "leader-followers:0", "leader-followers:x", "pool"] {
            assert!(Architecture::from_word(word).is_err(), "{word}");
        }
    }
}
