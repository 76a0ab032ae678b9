//! Where a server can be reached, or listens.

use std::fmt;
use std::path::PathBuf;

/// An address of one of the transports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// TCP: a host name or a literal address (IPv6 without brackets), and a port; port 0 lets the system choose when listening.
    Tcp {
        /// Host name or literal address.
        host: String,
        /// Port number.
        port: u16,
    },
    /// A Unix socket in the file system.
    Unix {
        /// Path of the socket.
        path: PathBuf,
    },
    /// Shared memory, with the processes meeting at a Unix socket in the file system.
    SharedMemory {
        /// Path of the socket.
        path: PathBuf,
    },
}

impl Endpoint {
    /// A TCP endpoint.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Endpoint::Tcp { host: host.into(), port }
    }

    /// A Unix socket endpoint.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Endpoint::Unix { path: path.into() }
    }

    /// A shared memory endpoint.
    pub fn shared_memory(path: impl Into<PathBuf>) -> Self {
        Endpoint::SharedMemory { path: path.into() }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
            Endpoint::Unix { path } => write!(f, "unix:{}", path.display()),
            Endpoint::SharedMemory { path } => write!(f, "shm:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_unambiguously() {
        assert_eq!(Endpoint::tcp("::1", 2809).to_string(), "tcp:[::1]:2809");
        assert_eq!(Endpoint::tcp("example.com", 2809).to_string(), "tcp:example.com:2809");
        assert_eq!(Endpoint::unix("/run/orb").to_string(), "unix:/run/orb");
        assert_eq!(Endpoint::shared_memory("/run/orb").to_string(), "shm:/run/orb");
    }
}
