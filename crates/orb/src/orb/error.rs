//! The reason why an ORB could not be made.

use std::fmt;
use std::io;

use corelane_net::Endpoint;

use crate::exception::SystemException;
use crate::listen_address;

/// The reason why an ORB could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum OrbError {
    /// An invalid address; the message shows it and the syntax.
    Address(String),
    /// Listening failed.
    Listen {
        /// The endpoint that could not be listened at.
        endpoint: Endpoint,
        /// The system's error.
        error: io::Error,
    },
    /// A required guarantee does not hold on this machine.
    Guarantee {
        /// The guarantee's name.
        name: String,
        /// The state that was found, and what to change.
        why: String,
    },
    /// The client policies are inconsistent, or connections to make at start cannot be made.
    Client(SystemException),
    /// A thread could not be started.
    Thread(io::Error),
    /// The system does not let the process lock its memory.
    Memory(io::Error),
    /// The system is out of descriptors or memory.
    System(io::Error),
}

impl fmt::Display for OrbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrbError::Address(text) => {
                write!(f, "\"{text}\" is no address: {}{}", listen_address::scheme_error(text), listen_address::SYNTAX)
            }
            OrbError::Listen { endpoint, error } => write!(f, "cannot listen at {endpoint}: {error}"),
            OrbError::Guarantee { name, why } => {
                write!(f, "the guarantee `{name}` is required and does not hold: {why}")
            }
            OrbError::Client(exception) => write!(f, "{exception}"),
            OrbError::Thread(error) => write!(f, "cannot start a thread: {error}"),
            OrbError::Memory(error) => write!(f, "the memory of the process cannot be locked: {error}"),
            OrbError::System(error) => write!(f, "cannot make an ORB: {error}"),
        }
    }
}

impl std::error::Error for OrbError {}
