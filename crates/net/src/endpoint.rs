//! Addresses at which servers listen and can be reached.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// An address of one of the transports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// A TCP address. Port 0 lets the system choose when listening.
    Tcp {
        /// Host name, or literal address (IPv6 without brackets).
        host: String,
        /// Port number.
        port: u16,
    },
    /// A Unix socket in the file system.
    Unix {
        /// Path of the socket.
        path: PathBuf,
    },
    /// Shared memory; the processes meet at a Unix socket in the file system.
    SharedMemory {
        /// Path of the socket.
        path: PathBuf,
    },
}

impl Endpoint {
    /// Returns a TCP endpoint.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Endpoint::Tcp { host: host.into(), port }
    }

    /// Returns a Unix socket endpoint.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Endpoint::Unix { path: path.into() }
    }

    /// Returns a shared memory endpoint.
    pub fn shared_memory(path: impl Into<PathBuf>) -> Self {
        Endpoint::SharedMemory { path: path.into() }
    }

    /// Returns true for a path, a loopback address or `localhost`: only this machine reaches it.
    /// Other host names are not looked up.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Endpoint::Tcp { host, .. } => match host.parse::<IpAddr>() {
                Ok(address) => address.to_canonical().is_loopback(),
                Err(_) => host.eq_ignore_ascii_case("localhost"),
            },
            Endpoint::Unix { .. } | Endpoint::SharedMemory { .. } => true,
        }
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
    fn local_endpoints_are_recognised() {
        for host in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost", "LocalHost"] {
            assert!(Endpoint::tcp(host, 1).is_local(), "{host}");
        }
        for host in ["", "0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1", "example.com", "localhost.example.com"] {
            assert!(!Endpoint::tcp(host, 1).is_local(), "{host}");
        }
        assert!(Endpoint::unix("/run/orb").is_local() && Endpoint::shared_memory("/run/orb").is_local());
    }

    #[test]
    fn endpoint_text_is_unambiguous() {
        assert_eq!(Endpoint::tcp("::1", 2809).to_string(), "tcp:[::1]:2809");
        assert_eq!(Endpoint::tcp("example.com", 2809).to_string(), "tcp:example.com:2809");
        assert_eq!(Endpoint::unix("/run/orb").to_string(), "unix:/run/orb");
        assert_eq!(Endpoint::shared_memory("/run/orb").to_string(), "shm:/run/orb");
    }
}
