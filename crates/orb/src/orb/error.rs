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
    /// An address is invalid. The message shows the address and the correct syntax.
    Address(String),
    /// Listening at an endpoint failed.
    Listen {
        /// The endpoint at which listening failed.
        endpoint: Endpoint,
        /// The error that the system returned.
        error: io::Error,
    },
    /// A required guarantee does not hold on this machine.
    Guarantee {
        /// The guarantee's name.
        name: String,
        /// The reason why the guarantee does not hold, and how to change that.
        why: String,
    },
    /// The client policies are inconsistent, the connections to make at start failed, or an initial
    /// reference or an argument of the program is invalid.
    Client(SystemException),
    /// The system refused to start a thread.
    Thread(io::Error),
    /// The system does not permit the process to lock its memory.
    Memory(io::Error),
    /// The system has no more descriptors or memory.
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
