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
    /// An address is invalid. The message contains the address and the correct syntax.
    InvalidAddress(String),
    /// Listening at an endpoint failed.
    Listen {
        /// The endpoint at which listening failed.
        endpoint: Endpoint,
        /// The error of the transport.
        error: io::Error,
    },
    /// The machine does not give a required real-time guarantee.
    GuaranteeNotMet {
        /// The guarantee's name.
        name: String,
        /// The reason why the machine does not give the guarantee, and the remedy.
        why: String,
    },
    /// The client policies are inconsistent, a connection to make at start failed, or an initial
    /// reference or an argument of the program is invalid.
    ClientSetup(SystemException),
    /// The kernel refused to start a thread.
    ThreadStart(io::Error),
    /// The kernel does not permit the process to lock its memory.
    MemoryLock(io::Error),
    /// The kernel has no more descriptors or memory for the process.
    NoResources(io::Error),
}

impl fmt::Display for OrbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrbError::InvalidAddress(text) => {
                write!(
                    f,
                    "\"{text}\" is not an address: {}{}",
                    listen_address::scheme_error(text),
                    listen_address::SYNTAX
                )
            }
            OrbError::Listen { endpoint, error } => write!(f, "cannot listen at {endpoint}: {error}"),
            OrbError::GuaranteeNotMet { name, why } => {
                write!(f, "the guarantee `{name}` is required and does not hold: {why}")
            }
            OrbError::ClientSetup(exception) => write!(f, "{exception}"),
            OrbError::ThreadStart(error) => write!(f, "cannot start a thread: {error}"),
            OrbError::MemoryLock(error) => write!(f, "the memory of the process cannot be locked: {error}"),
            OrbError::NoResources(error) => write!(f, "cannot make an ORB: {error}"),
        }
    }
}

impl std::error::Error for OrbError {}
