//! A transport with a separate address scheme: `pipe:NAME` is the Unix socket `NAME` in a folder.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane_net::{ConnectionProperties, Endpoint, Listener, Monotonic, Stream, Transport, UnixTransport};

const SCHEME: &str = "pipe";

/// A transport over the Unix sockets in one folder.
#[derive(Debug)]
pub struct PipeTransport {
    folder: PathBuf,
    attempts: AtomicUsize,
}

impl PipeTransport {
    /// Makes a transport over the sockets in `folder`, which must exist.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        PipeTransport { folder: folder.to_owned(), attempts: AtomicUsize::new(0) }
    }

    /// Returns the number of attempts to connect with this transport.
    #[must_use]
    pub fn connect_attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }

    fn socket(&self, endpoint: &Endpoint) -> io::Result<Endpoint> {
        let is_name =
            |name: &str| !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-');
        match endpoint {
            Endpoint::Other(other) if other.scheme() == SCHEME && is_name(other.address()) => {
                Ok(Endpoint::unix(self.folder.join(other.address())))
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{endpoint} does not name a pipe"))),
        }
    }
}

impl Transport for PipeTransport {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        matches!(endpoint, Endpoint::Other(other) if other.scheme() == SCHEME)
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        UnixTransport.connect_with_properties(&self.socket(endpoint)?, properties, deadline)
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let socket = UnixTransport.listen(&self.socket(endpoint)?)?;
        Ok(Box::new(PipeListener { socket, local: endpoint.clone() }))
    }
}

#[derive(Debug)]
struct PipeListener {
    socket: Box<dyn Listener>,
    local: Endpoint,
}

impl Listener for PipeListener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        self.socket.accept()
    }

    fn set_properties(&self, properties: &ConnectionProperties) -> io::Result<()> {
        self.socket.set_properties(properties)
    }

    fn readiness_descriptor(&self) -> BorrowedFd<'_> {
        self.socket.readiness_descriptor()
    }

    fn local_endpoint(&self) -> &Endpoint {
        &self.local
    }
}
